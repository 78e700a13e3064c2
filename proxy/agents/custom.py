"""Parts that a program can provide: the client of an engine, and the compaction of histories."""

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy import errors
from proxy.agents.foreign import SdkRequests, is_over, plain
from proxy.backends.client import (
    BackendModel,
    Description,
    Headers,
    Health,
    PassthroughRequest,
    Pieces,
    PromptTokens,
    ReplyEvents,
)
from proxy.context.budget import Window
from proxy.context.compaction import Fitted, TokenCounts, leave_unchanged
from proxy.context.tokens import TokenBook
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import Tool
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.dialects.openai_chat.replies import ChunkDecoder, StreamedError
from proxy.facts import Compacted
from proxy.tools.transcript import object_of

# Sends the body of a chat request to an engine, and returns a completion, or an async iterator of
# chunks, as dictionaries or objects of an SDK.
Client: TypeAlias = Callable[[JsonObject], object]
# Shortens messages to a number of tokens; equal input has to give equal output, for the cache.
Shorten: TypeAlias = Callable[[list[JsonObject], int], Sequence[Mapping[str, object]]]

_NAME = "the program's client"


class ClientBackend:
    """A backend for the client of a program; `window` is in tokens, None if unknown."""

    name = _NAME

    def __init__(self, client: Client, window: int | None) -> None:
        self._client = client
        self._window = window
        self._requests = SdkRequests("openai", None, TokenBook())

    async def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        del headers, sink
        decoder = ChunkDecoder()
        try:
            # A whole completion is decoded like a stream with one chunk.
            async for item in _chunks(self._client(self._requests.request(upstream_request))):
                chunk = plain(item)
                parts = decoder.feed(json.dump_text(chunk))
                parts += decoder.finish() if is_over(chunk) else []
                if failed := [part for part in parts if isinstance(part, StreamedError)]:
                    raise errors.BackendRefused(_NAME, 502, f"{failed[0].error.get('message')}")
                if batch := [part for part in parts if not isinstance(part, StreamedError)]:
                    yield batch
        except errors.TemperError:
            raise
        except ValueError as error:
            problem = f"returned an invalid reply: {error}"
            raise errors.BackendSpokeNonsense(_NAME, problem) from error
        except Exception as error:
            problem = f"failed: {type(error).__name__}: {error}"
            raise errors.BackendUnavailable(_NAME, problem) from error

    def relay(self, passage: PassthroughRequest, headers: Headers) -> Pieces:
        raise errors.BackendRefused(_NAME, 501, f"supports only chat requests, not {passage.path}")

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        return None

    async def count_texts(self, texts: Iterable[str], headers: Headers) -> tuple[int, ...] | None:
        return None

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: Headers
    ) -> PromptTokens:
        return None

    async def models(self) -> tuple[BackendModel, ...]:
        return ()

    async def describe(self, model: str) -> Description:
        return Description((model,), window=self._window)

    async def health(self) -> Health:
        return Health.READY


async def _chunks(given: object) -> AsyncIterable[object]:
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        async for chunk in given:
            yield chunk
    else:
        yield given


class CustomCompaction(msgspec.Struct, frozen=True):
    """Has the program shorten prompts that take more than the share `high` of the window."""

    shorten: Shorten
    counts: TokenCounts
    window: Window
    high: float

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        size = self.counts.estimate(messages, tools)
        if size <= self.high * budget.room:
            return leave_unchanged(messages, size, budget.window)
        room = max(0, budget.room - self.counts.count_besides(tools))
        chosen = self.shorten([*map(object_of, messages)], room)
        sent = decode_messages([msgspec.json.encode(message) for message in chosen])
        left = self.counts.estimate(sent, tools)
        if left > budget.most:  # the engine would refuse it, or silently truncate it
            problem = f"the program's compaction leaves too many tokens: {left} of {size}"
            raise errors.ContextOverflow(problem, size, budget.window)
        done = Compacted(1, 0, max(0, len(messages) - len(sent)), 1, left, size, budget.window)
        return Fitted(sent, compacted=replace(done, is_new=left < size))
