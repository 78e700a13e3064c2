"""What a client sees while the model that it asked for is being loaded."""

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from proxy.api.errors import describe
from proxy.api.streaming import StreamTimeouts, stream_start, while_connected
from proxy.dialects.front import Answering, Decoded, StreamEncoder
from proxy.errors import TemperError
from proxy.serving.services import LoadClaim, load_wait

_FIRST_NEWS = 1.0  # seconds until a stream begins: what fails at once has its own status


class LoadingStream:
    """The beginning of a stream whose model is not loaded yet, if the client has seen one.

    Whoever answers afterwards sends through it, and goes on with its `encoder`.
    """

    def __init__(self, send: Send, timeouts: StreamTimeouts) -> None:
        self.encoder: StreamEncoder | None = None
        self._send = send
        self._timeouts = timeouts
        self._is_over = False

    async def wait_for(self, claim: LoadClaim, decoded: Decoded, receive: Receive) -> None:
        """Wait until a model is loaded, for `load_wait` seconds at most.

        Raises `BackendUnavailable` and `ProcessFailed` kinds of errors, and `ClientDisconnect`.
        """
        if claim.is_granted:
            return
        failure: TemperError | None = None

        async def work() -> None:
            nonlocal failure
            failure = await self._failure_of(claim, decoded)

        if not await while_connected(receive, work):
            raise ClientDisconnect
        if failure is not None:
            raise failure

    async def send(self, message: Message) -> None:
        """Send a part of the answer, whoever has begun it."""
        await self._send(message)
        if message["type"] == "http.response.body":
            self._is_over = not message.get("more_body", False)

    async def fail(self, error: TemperError) -> bool:
        """End what the client has seen the beginning of with an error; tells whether it had any."""
        if self.encoder is None or self._is_over:
            return False
        payload = self.encoder.fail(describe(error))
        await self.send({"type": "http.response.body", "body": payload, "more_body": False})
        return True

    async def _failure_of(self, claim: LoadClaim, decoded: Decoded) -> TemperError | None:
        """Wait, and return what went wrong: a group of tasks would raise it in a group."""
        silence = min(_FIRST_NEWS, self._timeouts.keep_alive)
        try:
            async with load_wait(claim, self._timeouts.load_wait):
                while not await _is_granted_within(silence, claim):
                    silence = self._timeouts.keep_alive
                    if decoded.request.stream:
                        await self._report(claim.news, decoded.answering)
        except TemperError as error:
            return error
        return None

    async def _report(self, news: str, answering: Answering) -> None:
        """Send a comment, and a sign of life that counts: some clients do not count comments."""
        if self.encoder is None:
            self.encoder = answering.begin(None)
            await self._send(stream_start({}))
        body = self.encoder.comment(news) + self.encoder.keep_alive()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def _is_granted_within(seconds: float, claim: LoadClaim) -> bool:
    with anyio.move_on_after(seconds):
        await claim.wait_until_granted()
        return True
    return False
