"""A backend that counts tokens: it rejects prompts that exceed its window, as servers do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from proxy.backends.client import Description, ReplyEvents
from proxy.context.message_sizes import countable
from proxy.conversation.replies import EventSink, ReplyFinished, TextDelta, UsageReported
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import ContextOverflow
from tests.fakes.backend import ScriptedBackend

AROUND = 11  # template tokens per message


@dataclass
class TokenizingBackend(ScriptedBackend):
    """Counts with `tokenize`; callers may request counts only if it `can_count`.

    `refused` has the token counts of rejected prompts, and `served` those of other prompts. If it
    `is_silent`, a rejection contains no number.
    """

    tokenize: Callable[[str], int] = len
    window: int = 4_096
    can_count: bool = True
    is_silent: bool = False
    refused: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)

    def cost(self, upstream_request: UpstreamRequest) -> int:
        """Return the tokens of a prompt with its tools."""
        total = sum(
            self.tokenize(countable(message)) + AROUND for message in upstream_request.messages
        )
        return total + sum(self.tokenize(tool.source.decode()) for tool in upstream_request.tools)

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        self.upstream_requests.append(upstream_request)
        cost = self.cost(upstream_request)
        if cost >= self.window:
            self.refused.append(cost)
            raise ContextOverflow("too long", None if self.is_silent else cost, self.window)
        self.served.append(cost)
        usage = UsageReported({"prompt_tokens": cost, "completion_tokens": 3})
        yield (TextDelta("It is warm."), usage, ReplyFinished("stop"))

    async def count(self, upstream_request: UpstreamRequest, headers: dict[str, str]) -> int | None:
        return self.cost(upstream_request) if self.can_count else None

    async def count_texts(
        self, texts: Iterable[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        return tuple(map(self.tokenize, texts)) if self.can_count else None

    async def describe(self, model: str) -> Description:
        return Description((model,), window=self.window)
