"""The policy that learns the real length of prompts, and limits the length of replies."""

from collections.abc import Sequence

from msgspec import structs

from proxy.context.tokens import TokenBook
from proxy.conversation import replies
from proxy.conversation.endings import LENGTH
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.lenient_json import ESTIMATED, as_count, read_usage, write_usage
from proxy.errors import BackendFailed, ContextOverflow, InvalidRequest
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.driver import BackendPolicy, Batch, Failure
from proxy.inference.length import ReplyLength

_ENDS = (replies.UsageReported, replies.ReplyFinished, replies.ReplyUnreadable)
_NO_REPLY = ReplyLength(None)
_NO_USAGE = replies.UsageReported({})
_CUT_SHORT = replies.ReplyFinished(LENGTH)  # the engine ended the reply at its token limit
# Ollama, for example, drops the beginning of a prompt that is longer than num_ctx.
_TRUNCATED = (
    "the backend silently truncated the prompt: it read {total} of about {missing} tokens. "
    "Please shorten the conversation."
)


class PromptLearning(BackendPolicy):
    """Notes the reported length of each prompt in `book`; `window` is in tokens, None if unknown.

    A reply fails with `ContextOverflow` if its usage shows that the backend truncated the prompt. A
    reply is ended once it is longer than the client's limit or the window.
    """

    def __init__(self, book: TokenBook, window: int | None) -> None:
        self._book = book
        self._window = window
        self._upstream_request: UpstreamRequest
        self._length = _NO_REPLY  # until `begin`
        # The usage that will be completed with an estimate, because the backend has not reported
        # it, or has reported only zeros. None once the backend has reported counts.
        self._incomplete: replies.UsageReported | None = None

    def begin(
        self, upstream_request: UpstreamRequest, sink: replies.EventSink | None
    ) -> replies.EventSink | None:
        most = upstream_request.request.max_tokens or self._window
        self._upstream_request = upstream_request
        self._length = ReplyLength(most, is_constrained=upstream_request.schema is not None)
        self._incomplete = _NO_USAGE
        return self._length.bound(sink)

    @property
    def tokens(self) -> int:
        """An estimate of the tokens of the current reply so far."""
        return self._length.tokens

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        # the usage is reported at the end of a reply, so only its last batches are searched for it
        if isinstance(batch[-1], _ENDS) and (reported := _usage_in(batch)) is not None:
            index, usage = reported
            overflow = self._learn(usage.usage.get("prompt_tokens"))
            if overflow is not None:
                return batch[:index], overflow
            self._incomplete = None if _reports_tokens(usage) else usage
            if self._incomplete is not None:  # the completed usage is added at the end
                batch = (*batch[:index], *batch[index + 1 :])
            if not batch:
                return batch, None
        is_over = self._length.exceeds(batch) or batch[-1] == _CUT_SHORT
        if is_over:
            batch = self._length.end(batch)
        if self._incomplete is not None and isinstance(batch[-1], replies.ReplyFinished):
            batch = self._complete_usage(batch, self._incomplete)
        return batch, EnoughReadError() if is_over else None

    def fail(self, error: BackendFailed | InvalidRequest) -> None:
        if isinstance(error, ContextOverflow):
            request = self._upstream_request
            window = error.window or self._window
            self._book.refuse(request.messages, request.tools, error.prompt_tokens, window)

    def _learn(self, total: JsonValue) -> ContextOverflow | None:
        """Learn from the length of a prompt; return an error if the backend truncated it."""
        if not isinstance(total, int) or total <= 0:
            return None
        messages, tools = self._upstream_request.messages, self._upstream_request.tools
        if self._window is None:
            self._book.calibrate(messages, tools, total)
            return None
        missing = self._book.observe_total(messages, tools, total, self._window)
        if missing is None:
            return None
        message = _TRUNCATED.format(total=total, missing=missing)
        return ContextOverflow(message, missing, self._window, read=total)

    def _complete_usage(self, batch: Batch, incomplete: replies.UsageReported) -> Batch:
        """Add an estimate to the end of a reply whose usage was not reported."""
        request = self._upstream_request
        prompt = self._book.estimate(request.messages, request.tools)
        usage: JsonObject = write_usage(prompt, self._length.tokens, None)
        usage = {**usage, **ESTIMATED}
        return (*batch[:-1], structs.replace(incomplete, usage=usage), batch[-1])


def _reports_tokens(reported: replies.UsageReported) -> bool:
    """Return whether a usage contains a count above 0; engines that do not count send zeros."""
    usage = reported.usage
    return as_count(usage.get("prompt_tokens")) > 0 or any(read_usage(usage))


def _usage_in(batch: Sequence[replies.ReplyEvent]) -> tuple[int, replies.UsageReported] | None:
    """Return the index of the usage in a batch, and the usage; after it, the reply can only end."""
    for index in range(max(0, len(batch) - 2), len(batch)):
        if isinstance(event := batch[index], replies.UsageReported):
            return index, event
    return None
