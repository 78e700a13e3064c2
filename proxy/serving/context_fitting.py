"""Fits conversations into the context window: estimates tokens, and counts them near the limit.

`proxy.context` decides how to shorten a conversation, from its history alone. This module requests
token counts from the backend. It also stores what it has measured about the prompts of each model.

Theory of operation
-------------------
An estimate takes microseconds. A count is a request to the engine (0.3 s for 400 kB). Therefore, a
prompt whose estimate is far below the window is sent unchanged. Near the window, the engine counts
the whole prompt. If the prompt does not fit, the engine also counts each message separately,
because the decision where to cut needs the size of each message (decision 0020).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from msgspec import structs

from proxy.backends.client import Backend, Headers
from proxy.backends.learning import PromptLearning
from proxy.context.budget import BudgetMode, Window
from proxy.context.compaction import (
    Compaction,
    Fitted,
    Reported,
    Unshortened,
    leave_unchanged,
)
from proxy.context.message_sizes import LruCache, MessageSizes, countable
from proxy.context.prefix import Reread, common_length, compare, trace
from proxy.context.replay import Rules, Sliding, Tiered
from proxy.context.shortening import TextCache
from proxy.context.tokens import TokenBook
from proxy.conversation.failures import has_failed
from proxy.conversation.messages import Message
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.lenient_json import cached_tokens
from proxy.errors import ContextOverflow
from proxy.inference.plan import RequestPlan
from proxy.processes.managed import ManagedBackend
from proxy.profiles.known_model import KnownModel
from proxy.serving.rereading import (
    PromptReading,
    SentPrompt,
    WatchedPrompt,
    explain,
    is_continued,
    refine,
)

logger = logging.getLogger(__name__)

_WORTH_COUNTING = 0.6  # share of the available tokens below which an estimate is sufficient
_MOST_GUESSED = 0.1  # maximum share of a prompt that may be guessed; otherwise it is counted
_TINY = 250  # tokens; the counts of shorter prompts do not show how many bytes a token has
_FEW = 16  # if more messages have never been counted, the whole prompt is counted first
# A cut adds notes, and counting the notes may move the cut. Counting is repeated at most this
# often.
_MOST_ROUNDS = 5
_MOST_MODELS = 64  # models whose token counts are stored
_MOST_SESSIONS = 256  # sessions whose last prompts are stored


class FittingMode(Enum):
    """The handling of conversations that are too long.

    AUTO shortens them. REPORT sends them unchanged, and records the cut that AUTO would make.
    """

    OFF = "off"
    REPORT = "report"
    AUTO = "auto"


Strategy: TypeAlias = Literal["tiered", "sliding", "none"]


class TokenCount(NamedTuple):
    """The tokens of a prompt: counted by the engine, or estimated if it cannot count."""

    tokens: int
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """The operator's settings; `limit` is an upper bound for the window, in tokens.

    `budget` says how much of the window a prompt may use; it applies to servers that Temper did not
    start. If the engine needed at least `reread_seconds` to read a prompt again, the cause is
    logged. A program that embeds Temper may set `create_compaction` to use a different compaction.
    """

    mode: FittingMode = FittingMode.AUTO
    strategy: Strategy = "tiered"
    limit: int | None = None
    rules: Rules = field(default_factory=lambda: Rules(has_failed))
    budget: BudgetMode = "backend"
    reread_seconds: float = 5.0
    texts: TextCache = field(default_factory=TextCache, compare=False, repr=False)
    create_compaction: Callable[[TokenBook, Window], Compaction] | None = None

    def window(self, slot: int, count_error: float = 1.0) -> Window:
        """Return the usable part of a slot of `slot` tokens."""
        is_limited = self.budget == "backend" and self.limit is not None
        return Window(slot, "manual" if is_limited else self.budget, self.limit, count_error)

    def compaction(
        self, book: TokenBook, window: Window, *, is_counted: bool = False
    ) -> Compaction:
        if self.create_compaction is not None:
            return self.create_compaction(book, window)
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
        self._books: LruCache[str, TokenBook] = LruCache(_MOST_MODELS)
        self._sessions: LruCache[int, SentPrompt] = LruCache(_MOST_SESSIONS)
        self._prompts = 0

    async def fit(
        self,
        plan: RequestPlan,
        known: KnownModel,
        headers: Headers,
        mode: FittingMode | None = None,
    ) -> Fitted:
        """Fit a conversation if the window is known.

        Raises `ContextOverflow` if even the shortened conversation does not fit.
        """
        await self._measure_messages(plan.messages)
        mode = mode or self._policy.mode
        slot = known.window
        if mode is FittingMode.OFF or slot is None:
            return Fitted(plan.messages)
        book = self._book(known.model)
        size, total = await self._measure(plan, slot, book, headers)
        window = self._policy.window(slot, book.count_error)
        if size is not None:
            return leave_unchanged(plan.messages, size, window.size)
        compaction = self._policy.compaction(book, window, is_counted=book.knows(plan.tools))
        # the request is sent unchanged, but its record contains the cut
        if mode is FittingMode.REPORT or plan.is_untouchable:
            return plan.fit(Reported(compaction))
        try:
            fitted = await self._fit_counted(compaction, plan, book, headers)
        except ContextOverflow:
            # the size of an image is a guess: the prompt may fit, so the engine decides
            if total is None and self._has_media(plan.messages):
                return Fitted(plan.messages)
            raise
        account, most = fitted.compacted, self._room(plan, slot)
        # The prompt was cut, although the summed sizes of its messages and tools are below the
        # limit. This sum is not exact, so the engine counts the whole prompt to check the cut.
        if total is None and account is not None and account.epoch and account.client <= most:
            total = await self._count_whole(plan, book, headers)
        if total is not None and total <= most:
            return leave_unchanged(plan.messages, total, window.size)
        return fitted

    def _room(self, plan: RequestPlan, slot: int, count_error: float = 1.0) -> int:
        return self._policy.window(slot, count_error).budget(plan.request.reserved).room

    async def _measure(
        self, plan: RequestPlan, slot: int, book: TokenBook, headers: Headers
    ) -> tuple[int | None, int | None]:
        """Return (size, total) of the prompt in tokens.

        `size` is None if the prompt may be too long; any other value means that the prompt fits
        unchanged. `total` is the exact size, or None if the engine did not count the whole prompt.
        """
        uncut = plan.upstream_request()
        # `upstream_request` may describe the tools in the prompt, in a changed or added message
        if uncut.messages is not plan.messages:
            await self._measure_messages(uncut.messages)
        room = self._room(plan, slot, book.count_error)
        expected = book.expect(uncut.messages, uncut.tools)
        high = self._policy.rules.high * room
        is_far = expected.most <= min(_WORTH_COUNTING * room, high)
        # a tiny prompt fits even if its true size is 8 times the estimate
        is_tiny = expected.tokens <= min(_TINY, room // 16)
        guessable = _MOST_GUESSED * expected.tokens if book.can_guess else 0
        if is_tiny or (is_far and expected.guessed <= guessable):
            return expected.tokens, None
        total, most = None, self._room(plan, slot)
        unknown = book.unknown(plan.messages)
        is_uncertain = is_far or expected.most > high or len(unknown) > _FEW
        if is_uncertain and expected.least <= most:
            total = await self._count_whole(plan, book, headers)
            if total is not None and total <= most:
                return total, total
        has_learned = await self._learn(book, unknown, headers)
        if total is not None:
            book.count_whole(plan.messages, plan.tools, total)
        elif unknown and not has_learned:
            return (expected.tokens if is_far else None), None
        elif not book.knows(plan.tools):
            total = await self._count_whole(plan, book, headers)
        return (book.estimate(uncut.messages, uncut.tools) if is_far else None), total

    async def _count_whole(
        self, plan: RequestPlan, book: TokenBook, headers: Headers
    ) -> int | None:
        """Count the uncut prompt with the backend; None if it cannot count."""
        total = await self._backend.count(plan.upstream_request(), headers)
        if total is not None:
            book.count_whole(plan.messages, plan.tools, total)
        return total

    async def _fit_counted(
        self, compaction: Compaction, plan: RequestPlan, book: TokenBook, headers: Headers
    ) -> Fitted:
        """Fit with the counted sizes of the messages, and of the notes that the cut adds.

        A new cut adds notes that were never counted. Counting them may move the cut, which then
        adds other notes, so this is repeated up to `_MOST_ROUNDS` times.
        """
        for _ in range(_MOST_ROUNDS):
            fitted = None
            with book.note_guesses() as guessed, suppress(ContextOverflow):
                fitted = plan.fit(compaction)
            sent = fitted.messages if fitted is not None else ()
            unknown = book.unknown((*sent, *guessed)) if book.knows(plan.tools) else ()
            if await self._learn(book, unknown, headers):
                continue
            if fitted is not None:
                return fitted
            break
        return plan.fit(compaction)

    async def count(
        self, upstream_request: UpstreamRequest, known: KnownModel, headers: Headers
    ) -> TokenCount:
        """Count the prompt of an upstream request."""
        exact = await self._backend.count(upstream_request, headers)
        if exact is not None:
            return TokenCount(exact)
        book = self._book(known.model)
        guess = book.estimate(upstream_request.messages, upstream_request.tools)
        return TokenCount(guess, is_estimated=True)

    def estimate(self, model: str, plan: RequestPlan) -> int:
        """Estimate the tokens of the uncut prompt."""
        upstream_request = plan.upstream_request()
        return self._book(model).estimate(upstream_request.messages, upstream_request.tools)

    def learning(self, model: str, window: int | None = None) -> PromptLearning:
        """Return an object that learns the sizes of the model's prompts from its responses."""
        return PromptLearning(self._book(model), window)

    def watch_prompt(self, model: str, plan: RequestPlan) -> WatchedPrompt:
        """Compare a prompt with the previous prompt of its session.

        A session is identified by the model and the user's first message.
        """
        messages = plan.messages
        first_text = next((message.text for message in messages if message.role == "user"), "")
        key = hash((model, first_text))
        self._prompts += 1
        now = SentPrompt(trace(messages, plan.prompt_format.tools), self._prompts)
        before = self._sessions.find(key)
        broken = compare(before.trace, now.trace) if before is not None else None
        self._sessions.keep(key, now)
        return WatchedPrompt(now, before, broken)

    def record_reading(self, watched: WatchedPrompt, reading: PromptReading) -> Reread | None:
        """Store the token count of a prompt; return why the engine read a part of it again.

        Returns None if the engine read no part again, or did not report the tokens.
        """
        usage, now = reading.reported.usage, watched.now
        tokens = usage.get("prompt_tokens")
        if not isinstance(tokens, int):
            return None
        backend, before = self._backend, watched.before
        now.tokens, now.server = tokens, reading.server
        now.address = backend.address if isinstance(backend, ManagedBackend) else None
        if before is None or not before.tokens:
            return None
        cached = cached_tokens(usage)
        is_reused = cached is None or is_continued(cached, before.tokens, tokens)
        if watched.broken is None and is_reused:  # the usual case
            return None
        return explain(watched, before, reading)

    async def log_reread(
        self, reread: Reread, watched: WatchedPrompt, plan: RequestPlan, headers: Headers
    ) -> Reread:
        """Log an expensive reread.

        If the engine seems to be the cause, this method first compares the tokens of the prompt
        with those of the previous prompt, and corrects the cause.
        """
        if (reread.seconds or 0.0) < self._policy.reread_seconds:
            return reread
        if reread.causer == "engine" and watched.before is not None:
            count = len(watched.before.trace.messages)
            offset = await self._first_difference(plan, count, headers)
            reread = reread if offset is None else refine(reread, offset)
        logger.warning("prompt re-read: %s", reread)
        return reread

    async def _first_difference(
        self, plan: RequestPlan, count: int, headers: Headers
    ) -> int | None:
        """Return the index of the first token that differs from the previous prompt.

        The previous prompt consisted of the first `count` messages. Returns None if the backend
        cannot tokenize.
        """
        uncut = plan.upstream_request()
        if uncut.messages is not plan.messages:  # tools are described in the first message
            return None
        earlier = structs.replace(uncut, messages=uncut.messages[:count])
        before = await self._backend.prompt_tokens(earlier, headers)
        now = await self._backend.prompt_tokens(uncut, headers) if before is not None else None
        return None if before is None or now is None else common_length(before, now)

    async def _measure_messages(self, messages: Sequence[Message]) -> None:
        """Measure messages; other tasks run between the parts of long messages."""
        for _ in self._sizes.weigh_gradually(messages):
            await asyncio.sleep(0)

    def _has_media(self, messages: Sequence[Message]) -> bool:
        return any(weighed.media for weighed in self._sizes.weigh_all(messages))

    async def _learn(self, book: TokenBook, unknown: tuple[Message, ...], headers: Headers) -> bool:
        """Count messages that were never counted; return False if the backend cannot count."""
        texts = map(countable, unknown)  # lazy: `countable` is slow, and few backends count
        counted = await self._backend.count_texts(texts, headers) if unknown else None
        for message, tokens in zip(unknown, counted or (), strict=False):
            book.learn(message, tokens)
        return counted is not None

    def _book(self, model: str) -> TokenBook:
        return self._books.find(model) or self._books.keep(model, TokenBook(sizes=self._sizes))
