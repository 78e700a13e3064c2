"""Fuzzes request bodies in every API dialect; each must be answered or refused without a 5xx."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle

from hypothesis import strategies as st

from proxy.api.app import ServerOptions, create_app
from proxy.api.dialects import all_dialects
from proxy.api.edge import Edge
from proxy.backends.client import PassthroughRequest, Pieces, ReplyEvents
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    EventSink,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import TemperError
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fuzz.documents import VALUES, nearly
from tests.fuzz.growing_requests import CHAT, MESSAGES, RESPONSES, Growing
from tests.fuzz.targets import Target, run

REPLIES: list[list[ReplyEvent | TemperError]] = [
    [TextDelta("Hi."), ReplyFinished("stop")],
    [ToolCallStarted(0, "a", "get_time"), ToolCallArgumentsDelta(0, "{}"), ReplyFinished("stop")],
    [TextDelta('<tool_call>{"name": "0", "arguments": {}}'), ReplyFinished("length")],
]


@dataclass
class RepeatingBackend(ScriptedBackend):
    """Sends the same replies in turn, for any number of requests."""

    turns: Iterator[list[ReplyEvent | TemperError]] = field(default_factory=lambda: cycle(REPLIES))

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        self.forget()
        self.scripts = [next(self.turns)]
        async for batch in super().stream(upstream_request, headers):
            yield batch

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        yield b"data: [DONE]\n\n" if passage.stream else b"{}"

    def forget(self) -> None:
        """Drop earlier requests, so that memory does not grow."""
        for record in (self.upstream_requests, self.headers, self.counted, self.described):
            record.clear()


FRONTS = all_dialects()
PATHS: Mapping[str, Mapping[str, Growing]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/chat/completions/input_tokens": CHAT,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/completions": {"prompts": lambda n: {"prompt": ["Hi"] * n}},
    "/v1/embeddings": {"inputs": lambda n: {"input": ["Hi"] * n}},
}
_KINDS = [*PATHS]
_MOST = 300  # elements of the longest list


@cache
def _app() -> Edge:
    serving = ServerOptions()
    return create_app(
        serving.services_for(RepeatingBackend(counts=[9])), serving, Observers(meter=Metrics())
    )


def _bodies(path: str) -> st.SearchStrategy[bytes]:
    growing = st.sampled_from([*PATHS[path].values()])
    few: st.SearchStrategy[JsonObject] = growing.flatmap(
        lambda grow: nearly({**grow(2), "stream": True})
    )
    many = st.builds(lambda grow, count: grow(count), growing, st.integers(0, _MOST))
    return few.map(json.dump) | many.map(json.dump) | VALUES.map(json.dump)


_INPUTS = st.sampled_from(_KINDS).flatmap(
    lambda path: _bodies(path).map(lambda body: bytes([_KINDS.index(path)]) + body)
)


def judge(data: bytes) -> None:
    """Send a body; its first byte selects the endpoint."""
    path = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0]
    client = HandMadeClient(data[1:], "POST", path)
    run(client.call(_app()))
    check(client, most=499)


def check(client: HandMadeClient, *, most: int) -> None:
    """Check that the status is 200 or from 400 to `most`, and that the body is valid."""
    assert client.status in (200, *range(400, most + 1)), client.answer[:500]
    if client.answer_headers["content-type"].startswith("text/event-stream"):
        assert client.status == 200
        for event in client.answer.decode().split("\n\n"):
            lines = [line for line in event.split("\n") if line.startswith("data: {")]
            assert all(isinstance(json.parse(line[6:]), dict) for line in lines)
    elif client.status == 200:
        json.parse(client.answer)
    else:
        reply = json.parse(client.answer)
        error = reply.get("error") if isinstance(reply, dict) else None
        assert isinstance(error, dict)
        assert error["message"]


TARGETS = (Target("requests", _INPUTS, judge),)
