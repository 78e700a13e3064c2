"""`temper doctor --cache`: lists the prompts of a recording that an engine read again, and why.

A recording contains, for each prompt, the token counts that the engine reported. A llama-server
with the same model can also tokenize the prompts. Then the first token is known that differs from
the conversation's previous prompt, and the engine had to read the prompt from this token to its
end. Even without a difference, the engine reads the last token.

If a prompt continues the previous prompt, the number of cached tokens is taken from the engine's
report instead, because a model may generate the text of a reply with other tokens than the
tokenizer chooses for this text.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import structs
from rich.table import Table

from proxy.backends.llama_server import LlamaServer
from proxy.context.prefix import Causer, PrefixBroken, PromptTrace, common_length, compare, trace
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidConfiguration, InvalidRequest
from proxy.observability.recording import RecordedExchange, read_recording
from proxy.observability.replay import upstream_requests
from proxy.observability.sentences import cut, visible
from proxy.profiles.profile import Profile
from proxy.serving.managed_server import connection_to
from proxy.serving.opening import address_of
from proxy.serving.rereading import is_continued, refine
from proxy.settings import Settings

_LONGEST_TITLE = 60  # characters of the user's first message
_KEEP_TOOLS = "Send the same tools in the same order with every request of a conversation."
_KEEP_SYSTEM = (
    "Keep the system prompt the same during a conversation: values that change, such as the time, "
    "belong in the last message."
)
_APPEND = "Append messages, and leave earlier ones unchanged: turn off the client's own compaction."
_REMEDIES: Mapping[Causer, str] = {
    "temper": "Use a larger window (model.context_tokens), so that fewer cuts are needed.",
    "template": "Turn thinking off, or use a template that keeps the reasoning of earlier turns.",
    "engine": "Give the server a slot for each conversation (model.slots, or -np of llama-server), "
    "and keep the model loaded.",
}
_SILENT = "The engine does not report cached tokens; vLLM does with --enable-prompt-tokens-details."


class PromptRow(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one request; `cached` of its `tokens` were already in the engine's cache.

    `seconds` is the time in which the engine read the other tokens. `offset` is the index of the
    first token that differs from the previous prompt, None if it is unknown. `section` is the first
    part of the prompt that the client changed. `reason` is "" for a prompt that was not read again.
    """

    id: str
    at: float
    tokens: int | None = None
    cached: int | None = None
    seconds: float | None = None
    section: str = ""
    offset: int | None = None
    causer: Causer | None = None
    reason: str = ""

    @property
    def read(self) -> int | None:
        """The number of tokens that the engine read, according to its report."""
        return None if self.tokens is None or self.cached is None else self.tokens - self.cached

    @property
    def unavoidable(self) -> int | None:
        """The number of tokens that had to be read: those from the first difference to the end."""
        if self.tokens is None or self.offset is None:
            return None
        return max(1, self.tokens - self.offset)


class Conversation(msgspec.Struct, frozen=True):
    """The prompts of a conversation; `title` is its first user message, shortened."""

    model: str
    title: str
    rows: list[PromptRow]


class _SentPrompt(msgspec.Struct, frozen=True):
    """A request to the engine, and the `trace` of the client's request."""

    trace: PromptTrace
    request: UpstreamRequest
    tokens: int | None


class CacheExamination:
    """Examines exchanges in chronological order; an optional `server` tokenizes the prompts."""

    def __init__(self, profiles: Sequence[Profile], server: LlamaServer | None = None) -> None:
        self.conversations: dict[tuple[str, str], Conversation] = {}
        self._profiles = profiles
        self._server = server
        self._last: dict[tuple[str, str], _SentPrompt] = {}

    async def add(self, exchange: RecordedExchange) -> None:
        try:
            request = decode_request(msgspec.json.encode(exchange.request))
            sent = _read_exchange(exchange, request, self._profiles)
        except (InvalidRequest, ValueError, LookupError):
            return  # a recording may contain rejected requests
        first = next((message.text for message in request.messages if message.role == "user"), "")
        key = (request.model or next(iter(exchange.model.names), ""), first)
        before, self._last[key] = self._last.get(key), sent
        conversation = self.conversations.setdefault(key, Conversation(key[0], cut(first), []))
        conversation.rows.append(await self._row(exchange, before, sent))

    async def _row(
        self, exchange: RecordedExchange, before: _SentPrompt | None, now: _SentPrompt
    ) -> PromptRow:
        row = PromptRow(id=exchange.id, at=exchange.at)
        if (reading := exchange.reading) is not None:
            counts = (reading.tokens, reading.cached, reading.seconds)
            row = structs.replace(row, tokens=counts[0], cached=counts[1], seconds=counts[2])
        if before is None:
            return row
        broken = compare(before.trace, now.trace)
        offset = await self._first_difference(before, now, row.cached or 0)
        section = broken.section if broken is not None else ""
        row = structs.replace(row, section=section, offset=offset)
        causer, reason = _cause(exchange, broken, before.tokens, row)
        return structs.replace(row, causer=causer, reason=reason)

    async def _first_difference(
        self, before: _SentPrompt, now: _SentPrompt, cached: int
    ) -> int | None:
        if self._server is None:
            return None
        earlier = await self._server.prompt_tokens(before.request, {})
        later = await self._server.prompt_tokens(now.request, {})
        if earlier is None or later is None:
            return None
        offset = common_length(earlier, later)
        return max(offset, cached) if offset == len(earlier) else offset


def _read_exchange(
    exchange: RecordedExchange, request: Request, profiles: Sequence[Profile]
) -> _SentPrompt:
    upstream, reading = upstream_requests(exchange, profiles)[0], exchange.reading
    sent = upstream
    if reading is not None and reading.messages is not None:  # Temper shortened the conversation
        shortened = decode_request(msgspec.json.encode({"messages": reading.messages}))
        sent = structs.replace(upstream, messages=shortened.messages)
    tokens = reading.tokens if reading is not None else None
    return _SentPrompt(trace(upstream.messages, request.tools), sent, tokens)


def _cause(
    exchange: RecordedExchange, broken: PrefixBroken | None, before: int | None, row: PromptRow
) -> tuple[Causer | None, str]:
    """Return the causer of reading a prompt again, and the reason; None if it was not read again.

    If the index of the first different token is known, it is used to correct the recorded cause. If
    no cause was recorded, only a change by the client is recognized.
    """
    reread = exchange.reading.reread if exchange.reading is not None else None
    if reread is None:
        cached, tokens = row.cached, row.tokens or 0
        is_reused = cached is not None and is_continued(cached, before or 0, tokens)
        if broken is None or (before is not None and is_reused):
            return None, ""
        return "client", broken.reason
    refined = reread if row.offset is None else refine(reread, row.offset)
    return refined.causer, refined.reason


async def examine_cache(path: Path, settings: Settings) -> list[Conversation]:
    """Examine a recording; raises `InvalidConfiguration` if the file contains no exchange."""
    from proxy.profiles.files import load_profiles

    async with _connect(settings) as server:
        examination = CacheExamination(load_profiles(settings.profile.folder), server)
        for exchange in read_recording(path):
            await examination.add(exchange)
    if not examination.conversations:
        raise InvalidConfiguration("--cache", f"{path} contains no exchange")
    return [*examination.conversations.values()]


@asynccontextmanager
async def _connect(settings: Settings) -> AsyncGenerator[LlamaServer | None, None]:
    if settings.backend.url is None:
        yield None
        return
    server = LlamaServer(connection_to(settings.backend, address_of(settings)))
    try:
        yield server
    finally:
        await server.close()


def tables(conversations: Sequence[Conversation]) -> Iterator[Table]:
    """Yield a table for each conversation, with a row for each request."""
    for conversation in conversations:
        title = f"{conversation.model or '-'}: {conversation.title[:_LONGEST_TITLE]}"
        table = Table(title=visible(title), title_justify="left", box=None, pad_edge=False)
        for column in ("time", "prompt", "cached", "read", "seconds"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("first difference", overflow="fold")
        table.add_column("cause", overflow="fold")
        for row in conversation.rows:
            seconds = "-" if row.seconds is None else f"{row.seconds:.1f}"
            counts = (_number(row.tokens), _number(row.cached), _number(row.read), seconds)
            time = f"{datetime.fromtimestamp(row.at).astimezone():%H:%M:%S}"
            table.add_row(time, *counts, _describe_position(row) or "-", visible(row.reason) or "-")
        yield table


def summary(conversations: Sequence[Conversation]) -> str:
    """Describe how many prompts were read again, the cause that took most time, and its remedy."""
    rows = [row for conversation in conversations for row in conversation.rows]
    reread = [row for row in rows if row.reason]
    silent = f" {_SILENT}" if all(row.cached is None for row in rows) else ""
    if not reread:
        return f"None of {len(rows)} prompts was read again.{silent}"
    tokens, seconds = sum(row.read or 0 for row in reread), _seconds(reread)
    causes: dict[str, list[PromptRow]] = {}
    for row in reread:
        causes.setdefault(_remedy(row), []).append(row)
    remedy, main = max(causes.items(), key=lambda item: (_seconds(item[1]), len(item[1])))
    return (
        f"{_prompts(reread)} of {len(rows)} read again ({tokens:,} tokens, {seconds:.1f} s)."
        f" Main cause ({_prompts(main)}, {_seconds(main):.1f} s):"
        f" {visible(main[0].reason)}. {remedy}{silent}"
    )


def document(conversations: Sequence[Conversation]) -> JsonObject:
    return {
        "summary": summary(conversations),
        "conversations": [
            {
                "model": conversation.model,
                "first_message": conversation.title,
                "requests": [_row_document(row) for row in conversation.rows],
            }
            for conversation in conversations
        ],
    }


def _row_document(row: PromptRow) -> JsonValue:
    return {**structs.asdict(row), "read": row.read, "unavoidable": row.unavoidable}


def _remedy(row: PromptRow) -> str:
    if row.causer == "client":
        by_section = {"the tools": _KEEP_TOOLS, "the system prompt": _KEEP_SYSTEM}
        return by_section.get(row.section, _APPEND)
    return _REMEDIES.get(row.causer or "engine", "")


def _describe_position(row: PromptRow) -> str:
    token = "" if row.offset is None else f"after token {row.offset:,}"
    return ", ".join(filter(None, (row.section, token)))


def _prompts(rows: Sequence[PromptRow]) -> str:
    return "1 prompt" if len(rows) == 1 else f"{len(rows)} prompts"


def _seconds(rows: Sequence[PromptRow]) -> float:
    return sum(row.seconds or 0.0 for row in rows)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
