"""What a client sees while the model that it asked for is being loaded."""

from http import HTTPStatus

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from proxy.api.errors import describe
from proxy.api.exchange import identity_of
from proxy.api.streaming import Pace, stream_start, while_connected
from proxy.conversation import json
from proxy.conversation.requests import Request
from proxy.dialects import sse
from proxy.dialects.openai_chat.encode import ChunkEncoder
from proxy.errors import TemperError
from proxy.serving.loading import Claim, load_wait

_FIRST_NEWS = 1.0  # seconds until a stream begins: what fails at once has its own status


class Opening:
    """The beginning of a stream whose model is not loaded yet, if the client has seen one.

    Whoever answers afterwards sends through its `outlet`, and goes on with its `chunks`.
    """

    def __init__(self, send: Send, pace: Pace) -> None:
        self.chunks: ChunkEncoder | None = None
        self._send = send
        self._pace = pace
        self._problem: bytes | None = None
        self._is_over = False

    @property
    def outlet(self) -> Send:
        """What sends the rest of the answer, the whole of it if nothing was sent."""
        return self._send if self.chunks is None else self._continue

    async def wait_for(self, hold: Claim, request: Request, receive: Receive) -> None:
        """Wait until a model is loaded, for `pace.load_wait` seconds at most.

        Raises `BackendUnavailable` and `ProcessFailed` kinds of errors, and `ClientDisconnect`.
        """
        if hold.is_granted:
            return
        failure: TemperError | None = None

        async def work() -> None:
            nonlocal failure
            failure = await self._failure_of(hold, request)

        if not await while_connected(receive, work):
            raise ClientDisconnect
        if failure is not None:
            raise failure

    async def break_off(self) -> None:
        """Tell a client that has seen the beginning, and no end, that a bug of ours ended it."""
        if self.chunks is not None and not self._is_over:
            await self._end(json.dump(describe(TemperError()).body()))

    async def _failure_of(self, hold: Claim, request: Request) -> TemperError | None:
        """Wait, and return what went wrong: a group of tasks would raise it in a group."""
        silence = min(_FIRST_NEWS, self._pace.keep_alive)
        try:
            async with load_wait(hold, self._pace.load_wait):
                while not await _is_granted_within(silence, hold):
                    silence = self._pace.keep_alive
                    if request.stream:
                        await self._tell(hold.news, request)
        except TemperError as error:
            return error
        return None

    async def _tell(self, news: str, request: Request) -> None:
        """Send a comment, and an empty chunk: some clients do not count comments as life."""
        if self.chunks is None:
            self.chunks = ChunkEncoder(identity_of(None, request), request.include_usage)
            await self._send(stream_start({}))
        body = self.chunks.comment(news) + self.chunks.keep_alive()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _continue(self, message: Message) -> None:
        """Send a part of the answer; what comes with another status becomes an error event."""
        if message["type"] == "http.response.start":
            self._problem = None if message["status"] == HTTPStatus.OK else b""
        elif self._problem is None:
            self._is_over = not message.get("more_body", False)
            await self._send(message)
        else:
            self._problem += message.get("body", b"")
            if not message.get("more_body", False):
                await self._end(self._problem)

    async def _end(self, problem: bytes) -> None:
        """Send an error event, and nothing behind it."""
        self._is_over = True
        await self._send({"type": "http.response.body", "body": sse.encode_data(problem)})


async def _is_granted_within(seconds: float, hold: Claim) -> bool:
    with anyio.move_on_after(seconds):
        await hold.granted()
        return True
    return False
