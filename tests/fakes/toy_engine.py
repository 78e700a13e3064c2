"""The smallest engine with its own protocol.

Its requests are JSON objects at `/talk`, its responses lines: `say "text"`, `call NAME {...}`,
`cost PROMPT ANSWER`, `end`, or `fail REASON`. `/names` lists its models.
"""

from proxy.backends.capabilities import Lacks
from proxy.backends.client import BackendModel
from proxy.backends.http_backend import HttpBackend, OutgoingRequest, PieceDecoder
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.engine_language import carry_fields, put_once
from proxy.dialects.field_table import ENFORCED, IGNORED, FieldTable, copies, copy_to, refuse, rows
from proxy.dialects.lines import LineDecoder
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError

FIELDS = FieldTable(
    rows(ENFORCED, "model messages tools tool_choice parallel_tool_calls stream stream_options"),
    rows(IGNORED, "user metadata"),
    copies("temperature seed"),
    {"max_tokens": copy_to("length")},
    unknown=refuse("A toy knows no such field. Remove it."),
)


def encode_request(upstream_request: UpstreamRequest) -> bytes:
    """Return the request body; raises `InvalidRequest` for features that the engine lacks."""
    messages: list[JsonValue] = [
        [message.role, message.text] for message in upstream_request.messages
    ]
    tools: JsonObject = {tool.name: tool.parameters for tool in upstream_request.tools}
    body: JsonObject = {"name": upstream_request.request.model, "said": messages, "tools": tools}
    for name, value, target in carry_fields(upstream_request, FIELDS):
        put_once(body, target, value, name)
    return json.dump(body)


class LineReader:
    """Converts the lines of one reply into events."""

    def __init__(self) -> None:
        self._calls = 0
        self._has_ended = False

    def feed(self, line: bytes) -> list[ReplyPart]:
        word, _, rest = line.decode().partition(" ")
        match word:
            case "model":
                return [ReplyStarted(model=rest)]
            case "say":
                return [TextDelta(f"{json.parse(rest)}")]
            case "call":
                return self._call(*rest.split(" ", 1))
            case "cost":
                prompt, answer = map(int, rest.split())
                return [UsageReported({"prompt_tokens": prompt, "completion_tokens": answer})]
            case "fail":
                return [StreamedError({"message": rest})]
            case "end":
                self._has_ended = True
                return [ReplyFinished("tool_calls" if self._calls else "stop")]
            case _:
                raise ValueError(f"no such word: {word}")

    def finish(self) -> list[ReplyPart]:
        if not self._has_ended:
            raise ValueError("the reply ended before it was complete")
        return []

    def _call(self, name: str, arguments: str) -> list[ReplyPart]:
        number, self._calls = self._calls, self._calls + 1
        return [ToolCallStarted(number, None, name), ToolCallArgumentsDelta(number, arguments)]


class ToyEngine(HttpBackend):
    """The adapter, for a case in `proxy/serving/opening.py`."""

    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        return OutgoingRequest("/talk", encode_request(upstream_request), upstream_request)

    def new_decoder(self) -> PieceDecoder[bytes]:
        return PieceDecoder(LineDecoder(), LineReader())

    async def models(self) -> tuple[BackendModel, ...]:
        return self.read_models(await self.fetch("/names"), "names", "name")
