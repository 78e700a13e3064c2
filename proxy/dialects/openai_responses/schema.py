"""What the fields of a request look like on the wire; items and tools are read elsewhere.

Lax where clients are lax: null is absent, unknown members are welcome.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictStr

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.openai_chat.schema import count_schema, error_schema
from proxy.dialects.temper_options import TemperOptions
from proxy.dialects.wire_schema import (
    TEXT,
    Integer,
    Number,
    Schema,
    TokenCount,
    Unread,
    WireObject,
    check,
    object_schema,
    request_schema,
)


class Reasoning(WireObject):
    """How much is thought, and how thoughts are shown."""

    effort: StrictStr | None = None
    summary: StrictStr | None = None
    generate_summary: StrictStr | None = None  # its older name


class TextFormat(WireObject):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: StrictStr | None = None
    schema_: Schema | None = Field(default=None, alias="schema")


class TextOptions(WireObject):
    """What is said of the answer's text."""

    format: TextFormat | None = None


class ResponseRequest(WireObject):
    """A request for a response."""

    input: Unread = None
    instructions: StrictStr | None = None
    model: StrictStr | None = None
    stream: StrictBool | None = None
    store: StrictBool | None = None
    background: StrictBool | None = None
    previous_response_id: StrictStr | None = None
    parallel_tool_calls: StrictBool | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_logprobs: Integer | None = None
    max_output_tokens: TokenCount | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    include: Annotated[list[StrictStr], Field(fail_fast=True)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    prompt_cache_key: StrictStr | None = None
    metadata: dict[str, object] | None = None
    temper: TemperOptions | None = None


def validate(body: JsonObject) -> ResponseRequest:
    """Check the fields; raises `InvalidRequest` that names the first one that is wrong."""
    return check(ResponseRequest, body)


def responses_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error; the last two are those of the chat."""
    described = object_schema(
        id=TEXT,
        object={"const": "response"},
        created_at={"type": "integer"},
        status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
        model=TEXT,
        output={"type": "array", "items": {"type": "object"}},
    )
    answer: JsonObject = {"title": "Response", **described}
    request = request_schema(ResponseRequest, "Response")
    return Schemas(request, answer, count_schema(), error_schema())
