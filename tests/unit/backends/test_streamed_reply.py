import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import httpx
import pytest

from proxy.backends.refusals import as_error
from proxy.backends.streamed_reply import StreamedReply
from proxy.backends.transport import BackendClient
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.errors import BackendRefused, BackendSpokeNonsense, BackendUnavailable, TemperError

END = ReplyFinished("stop")


class Letters:
    """A language of letters: `.` is the end, `!` an error, and digits are nonsense."""

    def feed(self, data: bytes, /) -> Iterator[str]:
        yield from data.decode()

    def finish(self) -> Iterator[str]:
        yield from ()


class LetterReader:
    """Reads the language of letters."""

    def __init__(self) -> None:
        self._is_over = False

    def feed(self, piece: str, /) -> list[ReplyPart]:
        if piece.isdigit():
            raise ValueError(piece)
        if piece == "!":
            return [StreamedError({"message": "the secret-key is wrong", "code": 403})]
        self._is_over = self._is_over or piece == "."
        return [END if piece == "." else TextDelta(piece)]

    def finish(self) -> list[ReplyPart]:
        if not self._is_over:
            raise ValueError("no end")
        return []


class Body(httpx.AsyncByteStream):
    """A body that comes in chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def replied(*chunks: bytes) -> tuple[list[list[ReplyEvent]], TemperError | None]:
    """Return the batches of a reply, and what went wrong."""

    async def collect() -> tuple[list[list[ReplyEvent]], TemperError | None]:
        wire = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body(*chunks)))
        connection = BackendClient("http://host", "secret-key", transport=wire)
        reply = StreamedReply(connection, Letters(), LetterReader(), as_error)
        batches: list[list[ReplyEvent]] = []
        async with connection.post("/", b"", {}) as answer:
            try:
                async with aclosing(reply.batches(answer)) as coming:
                    async for batch in coming:
                        batches.append([*batch])  # noqa: PERF401 - kept when an error comes
            except TemperError as error:
                return batches, error
        return batches, None

    return asyncio.run(collect())


def test_what_comes_together_stays_together_and_the_end_is_by_itself() -> None:
    assert replied(b"ab", b"c", b"d.", b"e") == (
        [[TextDelta("a"), TextDelta("b")], [TextDelta("c")], [TextDelta("d")], [END]],
        None,
    )


def test_a_reply_may_be_nothing_but_its_end() -> None:
    assert replied(b".") == ([[END]], None)


def test_an_error_in_the_middle_comes_behind_what_was_said_and_without_secrets() -> None:
    batches, error = replied(b"ab!c")
    assert batches == [[TextDelta("a"), TextDelta("b")]]
    assert isinstance(error, BackendRefused)
    assert (error.status, error.message) == (403, "the [redacted] is wrong")


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([b"a"], BackendUnavailable),
        ([], BackendSpokeNonsense),
        ([b"1"], BackendSpokeNonsense),
        ([b"a", b"b1"], BackendSpokeNonsense),
    ],
)
def test_a_reply_that_breaks_off_is_told_from_nonsense(
    chunks: list[bytes], kind: type[TemperError]
) -> None:
    assert isinstance(replied(*chunks)[1], kind)
