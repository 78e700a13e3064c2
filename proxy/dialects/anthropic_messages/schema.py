"""The wire format of a Messages request, for validation and for the OpenAPI document.

Validation is as lenient as clients require: null counts as absent, and unknown members are
accepted. Only the type of a block is validated here; `history` validates its other members.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictBool, StrictStr, Tag

from proxy.dialects import wire_schema as wire
from proxy.dialects.dialect import Schemas


class Block(wire.WireObject):
    """A block of content; further members depend on its type."""

    type: StrictStr


Blocks: TypeAlias = Annotated[list[Block], Field(fail_fast=True), Tag("<an array>")]
Content: TypeAlias = Annotated[wire.Text | Blocks, wire.one_of("a string or an array of blocks")]


class InputMessage(wire.WireObject):
    """One entry of the history."""

    role: Literal["user", "assistant", "system"]
    content: Content | None = None


class OfferedTool(wire.WireObject):
    """A tool that the model may use; a custom tool may omit `type`."""

    type: StrictStr | None = None
    name: StrictStr | None = None
    description: StrictStr | None = None
    input_schema: wire.Schema | None = None
    strict: StrictBool | None = None
    defer_loading: StrictBool | None = None


class Choice(wire.WireObject):
    """How the model may use tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: StrictStr | None = None
    disable_parallel_tool_use: StrictBool | None = None


class Thinking(wire.WireObject):
    """The switch for reasoning (`enabled`, `disabled` or `adaptive`) and its limit in tokens."""

    type: StrictStr
    budget_tokens: wire.TokenCount | None = None


class AnswerFormat(wire.WireObject):
    """The format of the answer: JSON that satisfies a schema."""

    type: Literal["json_schema"]
    schema_: wire.Schema | None = Field(default=None, alias="schema")


class OutputConfig(wire.WireObject):
    """The format of the answer, and the effort: `low`, `medium` or `high`."""

    format: AnswerFormat | None = None
    effort: StrictStr | None = None


class MessagesRequest(wire.WireObject):
    """A Messages request. Members that are not listed have no effect."""

    messages: Annotated[list[InputMessage], Field(min_length=1, fail_fast=True)]
    model: StrictStr | None = None
    max_tokens: wire.TokenCount | None = None
    system: Content | None = None
    stream: StrictBool | None = None
    tools: Annotated[list[OfferedTool], Field(fail_fast=True)] | None = None
    tool_choice: Choice | None = None
    stop_sequences: Annotated[list[StrictStr], Field(fail_fast=True)] | None = None
    temperature: wire.Number | None = None
    top_p: wire.Number | None = None
    top_k: wire.Integer | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: AnswerFormat | None = None
    context_management: dict[str, wire.Unread] | None = None
    metadata: dict[str, wire.Unread] | None = None
    temper: wire.TemperOptions | None = None


def messages_schemas() -> Schemas:
    error = wire.named_schema("MessagesErrorDetails", type=wire.TEXT, message=wire.TEXT)
    return Schemas(
        wire.request_schema(MessagesRequest, "Messages"),
        wire.named_schema(
            "Message",
            id=wire.TEXT,
            type={"const": "message"},
            role={"const": "assistant"},
            model=wire.TEXT,
            content={"type": "array", "items": {"type": "object"}},
            stop_reason=wire.TEXT,
            usage={"type": "object"},
        ),
        wire.named_schema("MessagesCount", input_tokens={"type": "integer"}),
        wire.named_schema(
            "MessagesError", type={"const": "error"}, error=error, request_id=wire.TEXT
        ),
    )
