"""Messages as a front end: `POST /v1/messages` and the counting of its tokens."""

from dataclasses import dataclass
from functools import partial

from proxy.conversation import json
from proxy.conversation.replies import ReplyStarted
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
    IdentifiedAnswering,
    IdsAndClock,
    Problem,
    Schemas,
    Sender,
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
        request, stamp = decoded.request, self.stamp
        new_call_id = partial(stamp.call_id, "toolu_")

        def identify(started: ReplyStarted) -> MessageOptions:
            return MessageOptions(
                f"msg_{stamp.token()}",
                request.model or started.model or "",
                sender.request_id,
                new_call_id,
                shows_nothing=decoded.shows_nothing,
                reports_edits=decoded.asks_for_edits,
            )

        # a summary, and what has no tools to call, ends in prose
        is_summary = sender.headers.get(_CLASS_HEADER) == _COMPACTION
        # no string can hold this, as its quotes would be escaped
        has_pictures = PICTURE in request.fields["messages"]
        return Decoded(
            request,
            IdentifiedAnswering(identify, MessageStream, MessageBuilder, new_call_id),
            decoded.facts,
            accepts_prose=is_summary or not request.tools,
            blindness=_NO_SIGHT if has_pictures else "",
        )
