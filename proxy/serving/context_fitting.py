"""Keeps conversations inside the window: counts where an estimate is unsafe, and learns.

`context` decides how to shorten a conversation, from its history alone. This module asks the
backend for token counts, and remembers per model what it learned.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import structs

from proxy.backends.client import Backend, BackendWrapper, ChatBackend, Headers, ReplyEvents
from proxy.backends.pool import pin
from proxy.context.budget import BudgetMode, Window
from proxy.context.compaction import (
    Compaction,
    Fitted,
    Reported,
    Unshortened,
    leave_unchanged,
)
from proxy.context.message_sizes import Latest, MessageSizes, countable
from proxy.context.prefix import PrefixBroken, PromptTrace, compare, trace
from proxy.context.replay import Rules, Sliding, Tiered
from proxy.context.shortening import TextCache
from proxy.context.tokens import TokenBook
from proxy.conversation import replies
from proxy.conversation.endings import LENGTH
from proxy.conversation.failures import has_failed
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.lenient_json import as_count, read_usage, write_usage
from proxy.errors import ContextOverflow
from proxy.inference.length import ReplyLength
from proxy.inference.plan import RequestPlan
from proxy.profiles.known_model import KnownModel

logger = logging.getLogger(__name__)

_WORTH_COUNTING = 0.6  # of the room; below that an estimate is good enough
_MOST_GUESSED = 0.1  # of a prompt; if more is estimated, it is counted
_TINY = 250  # tokens: less teaches nobody what a token weighs
_FEW = 16  # texts: where more are unknown, the whole prompt is counted first
_MOST_ROUNDS = 5  # of counting what cuts have written, which moves them
_ENDS = (replies.UsageReported, replies.ReplyFinished, replies.ReplyUnreadable)
_MOST_MODELS = 64
_MOST_SESSIONS = 256
_NO_USAGE = replies.UsageReported({})
_CUT_SHORT = replies.ReplyFinished(LENGTH)
_CUT = (
    "the backend has read only {total} of about {missing} tokens, and dropped the others without "
    "a word. Please shorten the conversation."
)


class FittingMode(Enum):
    """What to do with a conversation that is too long; REPORT only counts and warns."""

    OFF = "off"
    REPORT = "report"
    AUTO = "auto"


# How a conversation is shortened.
Strategy: TypeAlias = Literal["tiered", "sliding", "none"]


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """The operator's decisions; with a `limit` the window counts as no larger than that.

    The `budget` applies to a running server: one that Temper starts has its own window.
    """

    mode: FittingMode = FittingMode.AUTO
    strategy: Strategy = "tiered"
    limit: int | None = None
    rules: Rules = field(default_factory=lambda: Rules(has_failed))
    budget: BudgetMode = "backend"
    texts: TextCache = field(default_factory=TextCache, compare=False, repr=False)
    own: Callable[[TokenBook, Window], Compaction] | None = None  # of a program

    def window(self, slot: int, doubt: float = 1.0) -> Window:
        """Return how much may be used of a slot of so many tokens."""
        is_plain = self.budget == "backend" and self.limit is not None
        return Window(slot, "manual" if is_plain else self.budget, self.limit, doubt)

    def compaction(
        self, book: TokenBook, window: Window, *, is_counted: bool = False
    ) -> Compaction:
        if self.own is not None:
            return self.own(book, window)
        rules = self.rules
        if is_counted:
            rules = replace(rules, high=rules.high_counted)
        match self.strategy:
            case "tiered":
                return Tiered(book, window, rules, self.texts)
            case "sliding":
                return Sliding(book, window)
            case "none":
                return Unshortened(book, window)


class Fitting:
    """Fits requests into the window of one backend."""

    def __init__(self, backend: Backend, policy: ContextPolicy) -> None:
        self._backend = backend
        self._policy = policy
        self._sizes = MessageSizes()
        self._books: Latest[str, TokenBook] = Latest(_MOST_MODELS)
        self._sessions: Latest[int, PromptTrace] = Latest(_MOST_SESSIONS)

    async def fit(
        self,
        plan: RequestPlan,
        known: KnownModel,
        headers: Headers,
        mode: FittingMode | None = None,
    ) -> Fitted:
        """Fit a conversation if the window is known; raises `ContextOverflow` if nothing fits."""
        await self._weigh(plan.messages)
        mode = mode or self._policy.mode
        slot = known.window
        if mode is FittingMode.OFF or slot is None:
            return Fitted(plan.messages)
        book = self._book(known.model)
        size, total = await self._measure(plan, slot, book, headers)
        window = self._policy.window(slot, book.doubt)
        if size is not None:
            return leave_unchanged(plan.messages, size, window.size)
        chosen = self._policy.compaction(book, window, is_counted=book.knows(plan.tools))
        if mode is FittingMode.REPORT or plan.is_untouchable:
            return plan.fit(Reported(chosen))
        try:
            fitted = await self._fit_counted(chosen, plan, book, headers)
        except ContextOverflow:
            # what a picture costs is a guess, and the engine knows better what is wrong with it
            if total is None and self._has_media(plan.messages):
                return Fitted(plan.messages)
            raise
        account, most = fitted.compacted, self._room(plan, slot)
        if total is None and account is not None and account.epoch and account.client <= most:
            total = await self._count_whole(plan, book, headers)
        if total is not None and total <= most:
            return leave_unchanged(plan.messages, total, window.size)
        return fitted

    def _room(self, plan: RequestPlan, slot: int, doubt: float = 1.0) -> int:
        return self._policy.window(slot, doubt).budget(plan.request.reserved).room

    async def _measure(
        self, plan: RequestPlan, slot: int, book: TokenBook, headers: Headers
    ) -> tuple[int | None, int | None]:
        """Return the size of a prompt that can go out as it is, None for one that may be too long.

        Then the exact total of the prompt, None where nobody has counted it.
        """
        asked = plan.upstream_request()
        if asked.messages is not plan.messages:
            await self._weigh(asked.messages)
        room = self._room(plan, slot, book.doubt)
        expected = book.expect(asked.messages, asked.tools)
        high = self._policy.rules.high * room
        is_far = expected.most <= min(_WORTH_COUNTING * room, high)
        is_tiny = expected.tokens <= min(_TINY, room // 16)  # and pieces differ by eight times
        guessable = _MOST_GUESSED * expected.tokens if book.can_guess else 0
        if is_tiny or (is_far and expected.guessed <= guessable):
            return expected.tokens, None
        total, most = None, self._room(plan, slot)
        unknown = book.unknown(plan.messages)
        is_doubtful = is_far or expected.most > high or len(unknown) > _FEW
        if is_doubtful and expected.least <= most:
            total = await self._count_whole(plan, book, headers)
            if total is not None and total <= most:
                return total, total
        has_learnt = await self._learn(book, unknown, headers)
        if total is not None:
            book.count_whole(plan.messages, plan.tools, total)
        elif unknown and not has_learnt:
            return (expected.tokens if is_far else None), None
        elif not book.knows(plan.tools):
            total = await self._count_whole(plan, book, headers)
        return (book.estimate(asked.messages, asked.tools) if is_far else None), total

    async def _count_whole(
        self, plan: RequestPlan, book: TokenBook, headers: Headers
    ) -> int | None:
        """Have the backend count a prompt as it would go out uncut; None where it cannot."""
        total = await self._backend.count(plan.upstream_request(), headers)
        if total is not None:
            book.count_whole(plan.messages, plan.tools, total)
        return total

    async def _fit_counted(
        self, chosen: Compaction, plan: RequestPlan, book: TokenBook, headers: Headers
    ) -> Fitted:
        """Fit with everything counted that a cut depends on, including what the cut has written.

        That is new only right after a cut. Counting may move the cut, which then writes something
        else.
        """
        for _ in range(_MOST_ROUNDS):
            fitted = None
            with book.note_guesses() as guessed, suppress(ContextOverflow):
                fitted = plan.fit(chosen)
            sent = fitted.messages if fitted is not None else ()
            unknown = book.unknown((*sent, *guessed)) if book.knows(plan.tools) else ()
            if await self._learn(book, unknown, headers):
                continue
            if fitted is not None:
                return fitted
            break
        return plan.fit(chosen)

    async def count(
        self, upstream_request: UpstreamRequest, known: KnownModel, headers: Headers
    ) -> int:
        """Count the prompt of a question, by estimate if the backend cannot."""
        exact = await self._backend.count(upstream_request, headers)
        if exact is not None:
            return exact
        return self._book(known.model).estimate(upstream_request.messages, upstream_request.tools)

    def estimate(self, model: str, plan: RequestPlan) -> int:
        """Estimate the tokens of a prompt as it would be sent uncut."""
        upstream_request = plan.upstream_request()
        return self._book(model).estimate(upstream_request.messages, upstream_request.tools)

    def learning_backend(self, model: str, window: int | None = None) -> ChatBackend:
        """Return the backend, wrapped to learn what its prompts really cost.

        Its replies raise `ContextOverflow` if it has silently dropped part of a prompt, and end if
        they are longer than the client or the window allows.
        """
        return _LearningBackend(pin(self._backend), self._book(model), window)

    def watch_prefix(self, model: str, plan: RequestPlan) -> PrefixBroken | None:
        """Return and log where a session's prompt does not continue the one before it."""
        # what identifies a session: the user's first message
        begin = next((one.text for one in plan.messages if one.role == "user"), "")
        key = hash((model, begin))
        now = trace(plan.messages, plan.prompt_format.tools)
        before = self._sessions.find(key)
        broken = compare(before, now) if before is not None else None
        if broken is not None:
            where = "the tools" if broken.place is None else f"message {broken.place}"
            logger.info("the prompt cache broke at %s: %s", where, broken.reason)
        self._sessions.keep(key, now)
        return broken

    async def _weigh(self, messages: Sequence[Message]) -> None:
        """Measure messages, and let others run in between where they are long."""
        for _ in self._sizes.weigh_gradually(messages):
            await asyncio.sleep(0)

    def _has_media(self, messages: Sequence[Message]) -> bool:
        return any(weighed.media for weighed in self._sizes.weigh_all(messages))

    async def _learn(self, book: TokenBook, unknown: tuple[Message, ...], headers: Headers) -> bool:
        """Have messages counted that were not counted before; return whether any were."""
        texts = map(countable, unknown)  # which takes a while, and few backends count
        counted = await self._backend.count_texts(texts, headers) if unknown else None
        for message, tokens in zip(unknown, counted or (), strict=False):
            book.learn(message, tokens)
        return counted is not None

    def _book(self, model: str) -> TokenBook:
        return self._books.find(model) or self._books.keep(model, TokenBook(sizes=self._sizes))


class _LearningBackend(BackendWrapper):
    """A backend whose prompts' real lengths are recorded and whose replies are bounded."""

    def __init__(self, backend: ChatBackend, book: TokenBook, window: int | None) -> None:
        super().__init__(backend)
        self._book = book
        self._window = window

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: Headers,
        sink: replies.EventSink | None = None,
    ) -> ReplyEvents:
        most = upstream_request.request.max_tokens or self._window
        length = ReplyLength(most, is_constrained=upstream_request.schema is not None)
        replying = self._backend.stream(upstream_request, headers, length.bound(sink))
        untold: replies.UsageReported | None = _NO_USAGE
        try:
            async for batch in replying:
                is_end = isinstance(batch[-1], _ENDS)
                if is_end and (told := _usage_in(batch)) is not None:
                    place, usage = told
                    untold = None if _tells_anything(usage) else usage
                    try:
                        self._check(upstream_request, usage.usage.get("prompt_tokens"))
                    except ContextOverflow:
                        if place:  # this was said, whatever is wrong with the prompt
                            yield batch[:place]
                        raise
                    batch = batch if untold is None else (*batch[:place], *batch[place + 1 :])
                    if not batch:
                        continue
                batch, is_over = _bound(length, batch)
                yield self._with_usage(upstream_request, length.tokens, untold, batch)
                if is_over:
                    return
        except ContextOverflow as overflow:
            window = overflow.window or self._window
            self._book.refuse(
                upstream_request.messages, upstream_request.tools, overflow.prompt_tokens, window
            )
            raise
        finally:
            await replying.aclose()

    def _with_usage(
        self,
        upstream_request: UpstreamRequest,
        answer: int,
        untold: replies.UsageReported | None,
        batch: Sequence[replies.ReplyEvent],
    ) -> Sequence[replies.ReplyEvent]:
        """Add an estimate to the end of a reply whose usage is `untold`: missing, or zeros."""
        if untold is None or not isinstance(batch[-1], replies.ReplyFinished):
            return batch
        prompt = self._book.estimate(upstream_request.messages, upstream_request.tools)
        usage: JsonObject = {**write_usage(prompt, answer, None), "temper": {"estimated": True}}
        return (*batch[:-1], structs.replace(untold, usage=usage), batch[-1])

    def _check(self, upstream_request: UpstreamRequest, total: JsonValue) -> None:
        """Learn from what a prompt cost; raises `ContextOverflow` if part of it was not read."""
        if not isinstance(total, int) or total <= 0:
            return
        messages, tools = upstream_request.messages, upstream_request.tools
        if self._window is None:
            self._book.calibrate(messages, tools, total)
            return
        missing = self._book.observe_total(messages, tools, total, self._window)
        if missing is not None:
            wording = _CUT.format(total=total, missing=missing)
            raise ContextOverflow(wording, missing, self._window, read=total)


def _bound(
    length: ReplyLength, batch: Sequence[replies.ReplyEvent]
) -> tuple[Sequence[replies.ReplyEvent], bool]:
    """Return a batch, or the last one of a reply that is cut off, and whether it is that."""
    if length.exceeds(batch) or batch[-1] == _CUT_SHORT:
        return length.end(batch), True
    return batch, False


def _tells_anything(reported: replies.UsageReported) -> bool:
    """Return whether an engine reported a usage, and not only zeros."""
    usage = reported.usage
    return as_count(usage.get("prompt_tokens")) > 0 or any(read_usage(usage))


def _usage_in(batch: Sequence[replies.ReplyEvent]) -> tuple[int, replies.UsageReported] | None:
    """Return the usage in a batch and its place; only the end can follow it."""
    for place in range(max(0, len(batch) - 2), len(batch)):
        if isinstance(event := batch[place], replies.UsageReported):
            return place, event
    return None
