"""A backend without a network: it plays one list of events for each request."""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from proxy.backends.client import (
    BackendModel,
    ChatBackend,
    Description,
    Health,
    PassthroughRequest,
    Pieces,
    PromptTokens,
    ReplyEvents,
)
from proxy.conversation.replies import EventSink, ReplyEvent
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import BackendFailed, InvalidRequest, TemperError
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.driver import BackendPolicy


async def every(batches: ReplyEvents) -> list[ReplyEvent]:
    """Collect all events of a reply."""
    return [event async for batch in batches for event in batch]


class FollowedBackend:
    """A backend that passes its replies through a policy, as a turn receives them."""

    def __init__(self, backend: ChatBackend, policy: BackendPolicy) -> None:
        self.name = backend.name
        self._backend = backend
        self._policy = policy

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        policy = self._policy
        sink = policy.begin(upstream_request, sink)
        try:
            async with aclosing(self._backend.stream(upstream_request, headers, sink)) as batches:
                async for batch in batches:
                    passed, failure = policy.receive(batch)
                    if passed:
                        yield passed
                    if failure is not None:
                        raise failure
        except EnoughReadError:
            policy.end()
        except (BackendFailed, InvalidRequest) as error:
            policy.fail(error)
            raise
        else:
            policy.end()


@dataclass
class ScriptedBackend:
    """Plays `scripts` in order, raising the errors in them; `closed` counts finished requests.

    `counts` are the results of token counts, in order; the last result repeats. If `counts` is
    empty, the backend cannot count tokens. A text has one token per word. Every passthrough request
    receives the same `pieces`.
    """

    scripts: list[list[ReplyEvent | TemperError]] = field(default_factory=list)
    upstream_requests: list[UpstreamRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    closed: int = 0
    passages: list[PassthroughRequest] = field(default_factory=list)
    pieces: list[bytes | TemperError] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    counted: list[UpstreamRequest] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    description: Description | None = None
    name: str = "scripted"
    state: Health = Health.READY
    catalogue: tuple[str, ...] = ("one",)

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        self.upstream_requests.append(upstream_request)
        self.headers.append(headers)
        try:
            for event in self.scripts[len(self.upstream_requests) - 1]:
                if isinstance(event, TemperError):
                    raise event
                yield (event,)
        finally:
            self.closed += 1

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        self.passages.append(passage)
        self.headers.append(headers)
        try:
            for piece in self.pieces:
                if isinstance(piece, TemperError):
                    raise piece
                yield piece
        finally:
            self.closed += 1

    async def count(self, upstream_request: UpstreamRequest, headers: dict[str, str]) -> int | None:
        self.counted.append(upstream_request)
        return self.counts[min(len(self.counted), len(self.counts)) - 1] if self.counts else None

    async def count_texts(
        self, texts: Iterable[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        return tuple(len(text.split()) for text in texts) if self.counts else None

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: dict[str, str]
    ) -> PromptTokens:
        return None

    async def models(self) -> tuple[BackendModel, ...]:
        return tuple(
            BackendModel(name, {"id": name, "owned_by": "someone"}) for name in self.catalogue
        )

    async def describe(self, model: str) -> Description:
        self.described.append(model)
        return self.description or Description((model,))

    async def health(self) -> Health:
        return self.state
