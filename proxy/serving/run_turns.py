"""The turns of a run: each is prepared and fitted like a separate request."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.context.prefix import PrefixBroken
from proxy.conversation.replies import ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.dialects.front import Sender
from proxy.errors import ContextOverflow
from proxy.inference.turn import MayRetry, Turn
from proxy.serving.request_preparation import (
    MOST_SHORTENINGS,
    ParsedRequest,
    PreparedRequest,
    RequestPreparation,
)
from proxy.tool_rounds.run import Ask


@dataclass(slots=True, kw_only=True)
class RunTurns:
    """Makes the turns of one run: `parsed` is its first request, of whom `sender` says.

    The headers of `upstream` travel to the backend, which `workers` share.
    """

    preparation: RequestPreparation
    parsed: ParsedRequest
    sender: Sender
    upstream: dict[str, str]
    may_retry: MayRetry
    workers: int = 1
    turns: list[Turn] = field(default_factory=list)
    prefix_broken: PrefixBroken | None = None
    _prepared: PreparedRequest | None = None
    _is_begun: bool = False
    _is_last: bool = False
    _is_seen: bool = False
    _shortenings: int = 0

    @property
    def prepared(self) -> PreparedRequest:
        assert self._prepared is not None  # noqa: S101 - it has begun
        return self._prepared

    def go_on_with(self, prepared: PreparedRequest, turn: Turn) -> None:
        """Take what somebody else has begun for the first turn."""
        self._prepared, self.turns, self._is_begun = prepared, [turn], True

    async def prepare(self, request: Request) -> PreparedRequest:
        parsed = replace(self.parsed, request=request)
        return await self.preparation.prepare(parsed, self.sender, self.upstream)

    async def begin(self, ask: Ask) -> Turn:
        self._is_last, self._shortenings, self._is_seen = ask.is_last, 0, False
        if self._is_begun:
            self._is_begun = False
            return self.turns[-1]
        prepared = self._prepared = await self.prepare(ask.request)
        service, known = prepared.service, prepared.known
        service.resize(known, self.workers)
        broken = service.fitting.watch_prefix(known.model, prepared.plan)
        self.prefix_broken = self.prefix_broken or broken
        turn = await self.preparation.turn(prepared, self.may_retry, is_last=ask.is_last)
        self.turns.append(turn)
        return turn

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help.

        It is too late once something of the answer was shown.
        """
        if self._is_seen or self._shortenings == MOST_SHORTENINGS:
            return None
        self._shortenings += 1
        turn = await self.preparation.shorter(
            self.prepared, self.may_retry, overflow, is_last=self._is_last
        )
        if turn is not None:
            self.turns[-1] = turn
        return turn

    def note(self, batch: Sequence[ReplyEvent]) -> None:
        self._is_seen = self._is_seen or any(isinstance(one, TextDelta) for one in batch)
