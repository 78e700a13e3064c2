"""Adapters for a program's own client of an engine, and for its own compaction."""

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

# A function that receives the body of a chat request, and returns a completion or an async iterator
# of chunks. Completions and chunks may be dictionaries or objects of an SDK.
Client: TypeAlias = Callable[[JsonObject], object]
# A function that shortens messages to at most a number of tokens. Equal input must give equal
# output, because the engine can reuse its prompt cache only for equal prompts.
Shorten: TypeAlias = Callable[[list[JsonObject], int], Sequence[Mapping[str, object]]]

_NAME = "the program's client"


class ClientBackend:
    """A backend that calls the client of a program; `window` is in tokens, None if unknown."""

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
            # a completion is decoded like a stream with a single chunk
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
            raise errors.BackendReplyInvalid(_NAME, problem) from error
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


async def _chunks(returned: object) -> AsyncIterable[object]:
    """Yield the chunks of a client's return value, which may be awaitable."""
    if inspect.isawaitable(returned):
        returned = await returned
    if isinstance(returned, AsyncIterable):
        async for chunk in returned:
            yield chunk
    else:
        yield returned


class CustomCompaction(msgspec.Struct, frozen=True):
    """Calls the program's `shorten` for prompts that exceed the fraction `high` of the budget."""

    shorten: Shorten
    counts: TokenCounts
    window: Window
    high: float

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        size = self.counts.estimate(messages, tools)
        if size <= self.high * budget.room:
            return leave_unchanged(messages, size, budget.window)
        available = max(0, budget.room - self.counts.count_besides(tools))
        shortened = self.shorten([*map(object_of, messages)], available)
        sent = decode_messages([msgspec.json.encode(message) for message in shortened])
        sent_size = self.counts.estimate(sent, tools)
        if sent_size > budget.most:  # the engine would reject the prompt, or silently truncate it
            problem = f"the program's compaction leaves too many tokens: {sent_size} of {size}"
            raise errors.ContextOverflow(problem, size, budget.window)
        removed = max(0, len(messages) - len(sent))
        compacted = Compacted(1, 0, removed, 1, sent_size, size, budget.window)
        return Fitted(sent, compacted=replace(compacted, is_new=sent_size < size))
