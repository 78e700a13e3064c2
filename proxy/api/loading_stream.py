"""Keeps a client's connection alive while its model is loaded."""

from dataclasses import dataclass

import anyio
from starlette.requests import ClientDisconnect

from proxy.api.client_connection import ClientConnection
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.dialects.front import Decoded
from proxy.errors import TemperError
from proxy.serving.services import LoadClaim, load_wait

_FIRST_NEWS = 1.0  # seconds until a stream begins: an earlier failure gets its own HTTP status


@dataclass(frozen=True, slots=True)
class LoadingStream:
    """Sends signs of life to a client whose model is not loaded yet."""

    connection: ClientConnection
    stream: AnswerStream
    timeouts: StreamTimeouts

    async def wait_for(self, claim: LoadClaim, decoded: Decoded) -> None:
        """Wait until a model is loaded, for `load_wait` seconds at most.

        Raises `BackendUnavailable` and `ProcessFailed` kinds of errors, and `ClientDisconnect`.
        """
        if claim.is_granted:
            return
        failure: TemperError | None = None

        async def work() -> None:
            nonlocal failure
            failure = await self._failure_of(claim, decoded)

        if not await self.connection.while_connected(work()):
            raise ClientDisconnect
        if failure is not None:
            raise failure

    async def _failure_of(self, claim: LoadClaim, decoded: Decoded) -> TemperError | None:
        """Wait, and return what went wrong: a group of tasks would raise it in a group."""
        silence = min(_FIRST_NEWS, self.timeouts.keep_alive)
        try:
            async with load_wait(claim, self.timeouts.load_wait):
                while not await _is_granted_within(silence, claim):
                    silence = self.timeouts.keep_alive
                    if decoded.request.stream:
                        await self._report(claim.news, decoded)
        except TemperError as error:
            return error
        return None

    async def _report(self, news: str, decoded: Decoded) -> None:
        if self.stream.encoder is None:
            await self.stream.begin(decoded.answering.begin(None), {})
        await self.stream.remark(news)


async def _is_granted_within(seconds: float, claim: LoadClaim) -> bool:
    with anyio.move_on_after(seconds):
        await claim.wait_until_granted()
        return True
    return False
