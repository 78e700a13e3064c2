"""What the recording client reads, in whatever pieces it arrived."""

from benchmarks.healthy.client import Recording, Seen, read_answer
from benchmarks.healthy.replies import Reply, prose_and_call, streamed, whole
from benchmarks.load.client import Answer

REPLY = prose_and_call(4)


def stream_of(reply: Reply) -> bytes:
    rendered = streamed(reply, has_usage=True)
    tokens = b"".join(event.before for event in rendered.tokens)
    return b"".join(rendered.start) + tokens + b"".join(rendered.end)


def seen(body: bytes, size: int | None = None, status: int = 200) -> Seen:
    """Read a body whose pieces arrive one second after the other."""
    connection = Recording()
    step = size or max(1, len(body))
    pieces = [body[place : place + step] for place in range(0, len(body), step)]
    connection.pieces = [(float(second), piece) for second, piece in enumerate(pieces, 1)]
    return read_answer(connection, Answer(status, total=float(len(pieces))))


def test_a_stream_is_read_in_any_pieces() -> None:
    body = stream_of(REPLY)
    expected = seen(body).content
    status, problem, said, reason, usage = expected
    assert (status, problem) == (200, "")
    assert [channel for channel, _ in said] == ["text", "name 0", "id 0", "arguments 0"]
    assert (said[0][1], said[3][1]) == (REPLY.text, REPLY.calls[0].arguments)
    assert reason == "tool_calls"
    assert usage is not None
    for size in (1, 7, 100):
        assert seen(body, size).content == expected


def test_a_whole_answer_says_what_a_stream_says() -> None:
    assert seen(whole(REPLY)).content == seen(stream_of(REPLY)).content


def test_characters_arrive_when_their_event_is_complete() -> None:
    found = seen(stream_of(REPLY), size=50)
    text, arguments = found.first("text"), found.first("arguments")
    assert text is not None
    assert arguments is not None
    assert 1 < text < arguments < found.total
    counts = [count for count, _ in found.arrived["text"]]
    assert counts == sorted(counts)
    assert counts[-1] == len(REPLY.text)
    assert found.first("name 1") is None


def test_an_error_a_cut_and_nonsense_are_problems() -> None:
    body = stream_of(REPLY)
    assert "the stream ends with" in seen(body[:-16]).problem
    assert "the stream ends with" in seen(b"").problem
    assert "unreadable" in seen(b"{nonsense").problem
    error = b'data: {"error":{"message":"no"}}\n\ndata: [DONE]\n\n'
    assert seen(error).problem == "an error: {'message': 'no'}"
