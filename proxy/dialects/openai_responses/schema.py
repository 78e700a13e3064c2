"""The wire format of a request, for validation and for the OpenAPI document.

Validation is as lenient as clients require: null counts as absent, and unknown members are
accepted. Items and tools are validated where they are read.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictStr

from proxy.dialects import wire_schema as wire
from proxy.dialects.dialect import Schemas
from proxy.dialects.field_table import read_tables
from proxy.dialects.openai_chat.schema import count_schema, error_schema

# The handling of every name in a request. A test compares the tables with the types of OpenAI's SDK
# and with the guide. Unknown fields are ignored, because clients add fields in every release.
# Unknown tools are refused.
_TABLES = read_tables("proxy.dialects.openai_responses")
FIELDS, ITEMS, TOOLS = _TABLES["fields"], _TABLES["items"], _TABLES["tools"]


class Reasoning(wire.WireObject):
    """The effort of reasoning, and whether the answer has a summary of the reasoning."""

    effort: StrictStr | None = None
    summary: StrictStr | None = None
    generate_summary: StrictStr | None = None  # the older name of `summary`


class TextFormat(wire.WireObject):
    """The format of the answer: text, any JSON, or JSON that satisfies a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: StrictStr | None = None
    schema_: wire.Schema | None = Field(default=None, alias="schema")


class TextOptions(wire.WireObject):
    """Options of the answer's text."""

    format: TextFormat | None = None


class ResponseRequest(wire.WireObject):
    """A request for a response."""

    input: wire.Unread = None
    instructions: StrictStr | None = None
    model: StrictStr | None = None
    stream: StrictBool | None = None
    store: StrictBool | None = None
    background: StrictBool | None = None
    previous_response_id: StrictStr | None = None
    parallel_tool_calls: StrictBool | None = None
    temperature: wire.Number | None = None
    top_p: wire.Number | None = None
    top_logprobs: wire.Integer | None = None
    max_output_tokens: wire.TokenCount | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    include: Annotated[list[StrictStr], Field(fail_fast=True)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    prompt_cache_key: StrictStr | None = None
    metadata: dict[str, object] | None = None
    temper: wire.TemperOptions | None = None


def responses_schemas() -> Schemas:
    """Describe the messages of the API; counts and errors are those of chat completions."""
    answer = wire.named_schema(
        "Response",
        id=wire.TEXT,
        object={"const": "response"},
        created_at={"type": "integer"},
        status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
        model=wire.TEXT,
        output={"type": "array", "items": {"type": "object"}},
    )
    request = wire.request_schema(ResponseRequest, "Response")
    return Schemas(request, answer, count_schema(), error_schema())
