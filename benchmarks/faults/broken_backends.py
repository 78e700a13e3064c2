"""Faults of a backend or of its connection."""

from collections.abc import Sequence

from benchmarks.faults import speech
from benchmarks.faults.demands import Demand, RightAnswer
from benchmarks.faults.good_replies import as_call, says
from benchmarks.faults.material import GONE, Fault, Material, Plan
from benchmarks.faults.toxics import Then, Toxic, chunk, chunked, repeats, sends, whole
from benchmarks.load.replies import event_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject

_UNAVAILABLE = frozenset({502})
_TIMED_OUT = frozenset({504})
_PAUSE = 0.1
_REPETITIONS = 40  # copies of the text in each delta of the endless reply without pauses
_MOST_BYTES = 64 * 2**20  # more than any limit of Temper

_STATUSES = (400, 401, 403, 404, 409, 422, 429, 500, 501, 502, 503, 504, 529)
_FORWARDED = (501, 503, 504)  # Temper replaces other server errors with 502


def _failing_plan(
    material: Material, plays: Sequence[Toxic], statuses: frozenset[int], *, shown: str = ""
) -> Plan:
    request = material.request(tools=material.chance.random() < 0.5 and not shown)
    demand = Demand(failures=statuses, shown=shown, attempts=len(plays))
    return Plan(request, tuple(plays), demand)


def _down(material: Material) -> Plan:
    request = material.request(tools=False, model=GONE)
    return Plan(request, (), Demand(failures=_UNAVAILABLE, attempts=0))


def _disconnects_at_once(material: Material) -> Plan:
    """Close the connection without a response.

    If the connection was reused, Temper cannot know whether the server received the request, so
    Temper may send the request twice.
    """
    then = material.chance.choice((Then.CLOSE, Then.RESET))
    response = material.chance.choice(
        (b"", b"HTTP/1.1 200 OK\r\ncontent-le", chunked(is_whole=False))
    )
    request = material.request(tools=material.chance.random() < 0.5)
    return Plan(request, (sends(response, then=then),), Demand(failures=_UNAVAILABLE, attempts=2))


def _disconnects_within_text(material: Material) -> Plan:
    text = material.text()
    response = chunked(speech.START, speech.text(speech.pieces(text)), is_whole=False)
    then = material.chance.choice((Then.CLOSE, Then.RESET, Then.HALF_CLOSE))
    return _failing_plan(material, (sends(response, then=then),), _UNAVAILABLE, shown=text)


def _disconnects_within_call(material: Material) -> Plan:
    """Disconnect within a call or after its closing brace; Temper must not forward the call."""
    deltas = as_call(material.call(), material)
    response = chunked(speech.START, deltas, is_whole=False)
    then = material.chance.choice((Then.CLOSE, Then.RESET, Then.HALF_CLOSE))
    request = material.request(tools=True)
    return Plan(request, (sends(response, then=then),), Demand(failures=_UNAVAILABLE))


def _disconnects_within_reasoning(material: Material) -> Plan:
    thoughts = material.text()
    response = chunked(speech.START, speech.thoughts(speech.pieces(thoughts)), is_whole=False)
    request = material.request(tools=material.chance.random() < 0.5)
    demand = Demand(failures=_UNAVAILABLE, thoughts=thoughts)
    return Plan(request, (sends(response, then=Then.RESET),), demand)


def _disconnects_within_respond(material: Material) -> Plan:
    """Disconnect within a `respond` call; the client may have received a part of its text."""
    text = material.text()
    deltas = speech.call("respond", speech.pieces(json.dump_text({"message": text})[:-2]))
    response = chunked(speech.START, deltas, is_whole=False)
    demand = Demand(failures=_UNAVAILABLE, shown=text)
    request = material.request(tools=True).with_header("x-temper-text-policy", "respond")
    return Plan(request, (sends(response, then=Then.RESET),), demand)


def _no_finish_reason(material: Material) -> Plan:
    """End the HTTP body properly, but send no finish reason."""
    text = material.text()
    play = sends(chunked(speech.START + speech.text(speech.pieces(text))), then=Then.NEXT)
    return _failing_plan(material, (play,), _UNAVAILABLE, shown=text)


def _silent(material: Material) -> Plan:
    response = material.chance.choice((b"", chunked(is_whole=False)))
    return _failing_plan(material, (sends(response, then=Then.SILENCE),), _TIMED_OUT)


def _silent_within_text(material: Material) -> Plan:
    text = material.text()
    response = chunked(speech.START, speech.text(speech.pieces(text)), is_whole=False)
    return _failing_plan(material, (sends(response, then=Then.SILENCE),), _TIMED_OUT, shown=text)


def _no_http(material: Material) -> Plan:
    garbage = (b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\xff\x16\x03\x01", b"HTTP/9.9 200\r\n\r\n", b"{}\n")
    return _failing_plan(material, (sends(material.chance.choice(garbage)),), _UNAVAILABLE)


def _no_reply(material: Material) -> Plan:
    """Send status 200 with a body that is not a chat completion."""
    bodies = (b"", b"{}", b"[]", b"null", b"<html>hello</html>", b'{"choices": []}', b'{"a": ')
    streams = (b"data: {\n\n", b"data: [1]\n\n", b"data: \xff\n\n", b"event: x\n\n", b"\n\n")
    play = material.chance.choice(
        (
            sends(whole(material.chance.choice(bodies)), then=Then.NEXT),
            sends(chunked(material.chance.choice(streams)), then=Then.NEXT),
        )
    )
    return _failing_plan(material, (play,), _UNAVAILABLE)


def _nonsense_within_text(material: Material) -> Plan:
    text = material.text()
    nonsense = material.chance.choice((b"data: {\n\n", b"data: \xff\xfe\n\n", b"data: 17\n\n"))
    stream = speech.START + speech.text(speech.pieces(text)) + nonsense
    return _failing_plan(
        material, (sends(chunked(stream), then=Then.NEXT),), _UNAVAILABLE, shown=text
    )


def _error_status(material: Material) -> Plan:
    status = material.chance.choice(_STATUSES)
    is_forwarded = status < 500 or status in _FORWARDED
    failure = json.dump(speech.failure(status, f"no luck: {material.text(5)}"))
    body = material.chance.choice((failure, b"no luck today", b""))
    play = sends(whole(body, status=f"{status} Refused"), then=Then.NEXT)
    return _failing_plan(material, (play,), frozenset({status if is_forwarded else 502}))


def _too_long(material: Material) -> Plan:
    error: JsonObject = {
        "code": 400,
        "message": "request (33009 tokens) exceeds the available context size (2048 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 33009,
        "n_ctx": 2048,
    }
    play = sends(whole(json.dump({"error": error}), status="400 Bad Request"), then=Then.NEXT)
    # a conversation with earlier messages is shortened and sent again, once
    return _failing_plan(material, (play, play), frozenset({400}))


def _error_event_first(material: Material) -> Plan:
    status = material.chance.choice((400, 429, 500, 503))
    event = event_of(speech.failure(status, "no luck today"))
    wanted = frozenset({502 if status == 500 else status})
    return _failing_plan(material, (sends(chunked(event), then=Then.NEXT),), wanted)


def _error_event_within_text(material: Material) -> Plan:
    text = material.text()
    stream = speech.START + speech.text(speech.pieces(text))
    failure = event_of(speech.failure(500, "Compute error."))
    play = sends(chunked(stream + failure), then=Then.NEXT)
    return _failing_plan(material, (play,), _UNAVAILABLE, shown=text)


def _loading(material: Material) -> Plan:
    """Send 503 "Loading model" to the first request, and a right reply to the second."""
    text = material.text()
    failure = speech.failure(503, "Loading model", "unavailable_error")
    loading = sends(whole(json.dump(failure), status="503 Unavailable"), then=Then.NEXT)
    plays = (loading, says(speech.text(speech.pieces(text))))
    return Plan(material.request(tools=False), plays, Demand((RightAnswer(text),), attempts=2))


def _endless_text_slowly(material: Material) -> Plan:
    return _endless_text(material, seconds=_PAUSE)


def _endless_text_fast(material: Material) -> Plan:
    return _endless_text(material, seconds=0)


def _endless_text(material: Material, seconds: float) -> Plan:
    """Repeat a text endlessly; Temper may end the response with the finish reason `length`."""
    piece = f"{material.text(20)} " * (1 if seconds else _REPETITIONS)
    first = chunked(speech.START, is_whole=False)
    play = repeats(first, chunk(speech.text([piece])), seconds=seconds, most=_MOST_BYTES)
    demand = Demand(
        (RightAnswer(piece, reason="length"),),
        failures=_TIMED_OUT | _UNAVAILABLE,
        shown=piece,
        is_endless=True,
    )
    return Plan(material.request(tools=False), (play,), demand)


def _endless_call(material: Material) -> Plan:
    """Begin a call, then send empty chunks endlessly; Temper may end the response with `length`."""
    piece = speech.call("write_note", ['{"title": "', material.text(5)])
    more = event_of({"choices": []})
    first = chunked(speech.START, piece, is_whole=False)
    play = repeats(first, chunk(more), seconds=_PAUSE)
    demand = Demand((RightAnswer(reason="length"),), failures=_TIMED_OUT)
    return Plan(material.request(tools=True), (play,), demand)


FAULTS = (
    Fault("backend: down", 20, _down),
    Fault("backend: disconnects without an answer", 15, _disconnects_at_once),
    Fault("backend: disconnects within text", 20, _disconnects_within_text),
    Fault("backend: disconnects within a call", 15, _disconnects_within_call),
    Fault("backend: disconnects within thoughts", 8, _disconnects_within_reasoning),
    Fault("backend: disconnects within an answer next to tools", 8, _disconnects_within_respond),
    Fault("backend: disconnects before the finish reason", 10, _no_finish_reason),
    Fault("backend: silent", 8, _silent),
    Fault("backend: silent within text", 8, _silent_within_text),
    Fault("backend: no HTTP", 10, _no_http),
    Fault("backend: no reply", 15, _no_reply),
    Fault("backend: nonsense within text", 10, _nonsense_within_text),
    Fault("backend: refuses", 30, _error_status),
    Fault("backend: prompt too long", 8, _too_long),
    Fault("backend: an error as the first event", 8, _error_event_first),
    Fault("backend: an error within text", 8, _error_event_within_text),
    Fault("backend: loading", 10, _loading),
    Fault("backend: text without an end, slowly", 3, _endless_text_slowly),
    Fault("backend: text without an end, at once", 1, _endless_text_fast),
    Fault("backend: a call without an end", 2, _endless_call),
)
