"""Messages as a front end: `POST /v1/messages` and the counting of its tokens."""

from dataclasses import dataclass
from typing import ClassVar

from proxy.conversation import json
from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.dialects import sse
from proxy.dialects.anthropic_messages.decode import DecodedMessages, decode_request
from proxy.dialects.anthropic_messages.encode import (
    MESSAGE_STOP,
    MessageBuilder,
    MessageOptions,
    MessageStream,
    error_reply,
)
from proxy.dialects.anthropic_messages.schema import messages_schemas
from proxy.dialects.foreign_history import PICTURE
from proxy.dialects.front import (
    Decoded,
    ErrorReply,
    IdsAndClock,
    Problem,
    Schemas,
    Sender,
    StampedAnswering,
)

# what Claude Code says that a request is for, where CLAUDE_CODE_GATEWAY_HINT_HEADERS is set
_CLASS_HEADER = "x-claude-code-request-class"
_COMPACTION = "compaction"
# Claude Code puts a text in the place of the picture and goes on.
_NO_SIGHT = "capability_rejected: image_block (the model takes no pictures)"


@dataclass(frozen=True, slots=True)
class MessagesFront:
    """Speaks `POST /v1/messages`."""

    stamp: IdsAndClock
    name: str = "messages"
    id_header: str = "request-id"
    stream_type: str = sse.MEDIA_TYPE

    def schemas(self) -> Schemas:
        return messages_schemas()

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        return self._answerable(decode_request(body), sender)

    def decode_count(self, body: bytes, sender: Sender) -> Decoded:
        return self._answerable(decode_request(body, is_count=True), sender)

    def encode_count(self, tokens: int) -> bytes:
        """Write how many tokens a prompt has, those that are cached included."""
        return json.dump({"input_tokens": tokens})

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        return error_reply(problem, request_id)

    def is_complete(self, end: bytes) -> bool:
        return end.endswith(MESSAGE_STOP)

    def _answerable(self, decoded: DecodedMessages, sender: Sender) -> Decoded:
        answering = MessagesAnswering(decoded, self.stamp, sender.request_id)
        # a summary, and what has no tools to call, ends in prose
        is_summary = sender.headers.get(_CLASS_HEADER) == _COMPACTION
        accepts_prose = is_summary or not decoded.request.tools
        # no string can hold this, as its quotes would be escaped
        has_pictures = PICTURE in decoded.request.fields["messages"]
        blindness = _NO_SIGHT if has_pictures else ""
        return Decoded(
            decoded.request, answering, decoded.facts, accepts_prose, blindness=blindness
        )


@dataclass(frozen=True, slots=True)
class MessagesAnswering(StampedAnswering):
    """One answer to a Messages request, with the model's name as the client wrote it."""

    decoded: DecodedMessages
    stamp: IdsAndClock
    request_id: str
    call_prefix: ClassVar[str] = "toolu_"

    def begin(self, first: ReplyEvent | None) -> MessageStream:
        return MessageStream(self._terms(first))

    def builder(self, first: ReplyEvent | None) -> MessageBuilder:
        return MessageBuilder(self._terms(first))

    def _terms(self, first: ReplyEvent | None) -> MessageOptions:
        started = first if isinstance(first, ReplyStarted) else ReplyStarted()
        return MessageOptions(
            f"msg_{self.stamp.token()}",
            self.decoded.request.model or started.model or "",
            self.request_id,
            self.new_call_id,
            shows_nothing=self.decoded.shows_nothing,
            reports_edits=self.decoded.asks_for_edits,
        )
