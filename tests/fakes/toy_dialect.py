"""The smallest API dialect: `{"SAY": "...", "STREAM": true}`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.conversation.messages import user_message
from proxy.conversation.replies import ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.dialects.dialect import Client, Decoded, ErrorReply, Problem, Schemas
from proxy.errors import InvalidRequest


@dataclass
class ShoutedAnswer:
    """A response in capital letters, streamed or not."""

    reports_prompt_size = False

    shouts: list[str] = field(default_factory=list)

    def begin(self, first: ReplyEvent | None) -> "ShoutedAnswer":
        return self

    builder = begin

    def new_call_id(self) -> str:
        return "CALL"

    def add(self, event: ReplyEvent) -> None:
        self.shouts += [event.text.upper()] if isinstance(event, TextDelta) else []

    def build(self) -> bytes:
        return json.dumps({"SAID": "".join(self.shouts)}).encode()

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        return "".join(
            event.text.upper() for event in events if isinstance(event, TextDelta)
        ).encode()

    def keep_alive(self) -> bytes:
        return b"..."

    def comment(self, text: str) -> bytes:
        return b"(%b)" % text.encode()

    def end(self) -> bytes:
        return b" OVER"

    def fail(self, problem: Problem) -> bytes:
        return b" BROKEN: " + problem.message.upper().encode()


class Shouting:
    """The dialect, for a row of the registry in `proxy/api/dialects.py`."""

    name = "shouting"
    id_header = "x-request-id"
    stream_type = "text/event-stream"

    def schemas(self) -> Schemas:
        return Schemas({"title": "Ask"}, {"title": "Say"}, {"title": "Count"}, {"title": "Fail"})

    def decode(self, body: bytes, client: Client) -> Decoded:
        document = json.loads(body)
        if "SAY" not in document:
            raise InvalidRequest("SAY SOMETHING.", "SAY")
        message = user_message(document["SAY"])
        fields = {"model": b'"m"', "messages": b"[%b]" % message.source}
        request = Request("m", (message,), fields, stream=document.get("STREAM", False))
        return Decoded(request, ShoutedAnswer())

    decode_count = decode

    def encode_count(self, tokens: int, *, is_estimated: bool) -> bytes:
        return b"%s%d TOKENS" % (b"ABOUT " if is_estimated else b"", tokens)

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        return ErrorReply(problem.status, problem.headers, problem.message.upper().encode())

    def is_complete(self, end: bytes) -> bool:
        return end.endswith(b" OVER")
