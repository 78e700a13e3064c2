"""The wire format of Ollama's requests, for validation and for the OpenAPI document.

Validation is as lenient as in Ollama: null counts as absent, and unknown members and options are
accepted.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictBool, StrictStr, Tag

from proxy.dialects import wire_schema as wire
from proxy.dialects.dialect import Schemas
from proxy.dialects.field_table import read_tables
from proxy.dialects.openai_chat.schema import MadeCall, OfferedFunction

# Every member and option of a request and its handling. A test compares the tables with the types
# of ollama-python, and the guide with the tables.
_TABLES = read_tables("proxy.dialects.ollama_chat.downstream")
FIELDS, OPTIONS = _TABLES["fields"], _TABLES["options"]

Texts: TypeAlias = Annotated[list[StrictStr], Field(fail_fast=True)]
Level: TypeAlias = Annotated[Literal["low", "medium", "high", "max"], Tag("<a string>")]
Think: TypeAlias = Annotated[
    wire.Boolean | Level, wire.one_of('true, false, "low", "medium", "high" or "max"')
]
Duration: TypeAlias = Annotated[
    wire.Text | Annotated[wire.Number, Tag("<a number>")],
    wire.one_of('a duration like "5m", or a number of seconds'),
]
Form: TypeAlias = Annotated[
    Annotated[Literal["", "json"], Tag("<a string>")] | wire.Object,
    wire.one_of('"json" or a JSON schema'),
]


class SentMessage(wire.WireObject):
    """One entry of the history; pictures are base64."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: StrictStr | None = None
    thinking: StrictStr | None = None
    images: Texts | None = None
    tool_calls: Annotated[list[MadeCall], Field(fail_fast=True)] | None = None
    tool_name: StrictStr | None = None
    tool_call_id: StrictStr | None = None


class OfferedTool(wire.WireObject):
    """A tool that the model may use."""

    type: Literal["function"] | None = None
    function: OfferedFunction


class Options(wire.WireObject):
    """The options of sampling and of loading the model."""

    temperature: wire.Number | None = None
    top_p: wire.Number | None = None
    min_p: wire.Number | None = None
    typical_p: wire.Number | None = None
    repeat_penalty: wire.Number | None = None
    presence_penalty: wire.Number | None = None
    frequency_penalty: wire.Number | None = None
    top_k: wire.Integer | None = None
    seed: wire.Integer | None = None
    repeat_last_n: wire.Integer | None = None
    num_predict: wire.Integer | None = None
    stop: Texts | None = None
    num_ctx: wire.Integer | None = None
    num_batch: wire.Integer | None = None
    num_gpu: wire.Integer | None = None
    num_keep: wire.Integer | None = None
    num_thread: wire.Integer | None = None
    main_gpu: wire.Integer | None = None
    use_mmap: StrictBool | None = None


class _GenerationRequest(wire.WireObject):
    model: StrictStr | None = None
    stream: StrictBool | None = None
    format: Form | None = None
    options: Options | None = None
    think: Think | None = None
    keep_alive: Duration | None = None
    logprobs: StrictBool | None = None
    top_logprobs: wire.Integer | None = None
    temper: wire.TemperOptions | None = None


class OllamaChatRequest(_GenerationRequest):
    """A conversation; a request without messages only loads the model."""

    messages: Annotated[list[SentMessage], Field(fail_fast=True)] | None = None
    tools: Annotated[list[OfferedTool], Field(fail_fast=True)] | None = None


class OllamaGenerateRequest(_GenerationRequest):
    """A prompt without tools; a request without a prompt only loads the model."""

    prompt: StrictStr | None = None
    system: StrictStr | None = None
    suffix: StrictStr | None = None
    images: Texts | None = None
    raw: StrictBool | None = None


def ollama_schemas(kind: type[_GenerationRequest]) -> Schemas:
    is_chat = kind is OllamaChatRequest
    answer = {"message": {"type": "object"}} if is_chat else {"response": wire.TEXT}
    return Schemas(
        wire.request_schema(kind, "Ollama"),
        wire.named_schema(
            "OllamaChatResponse" if is_chat else "OllamaGenerateResponse",
            model=wire.TEXT,
            created_at=wire.TEXT,
            done={"type": "boolean"},
            **answer,
        ),
        wire.named_schema("OllamaCount", prompt_eval_count={"type": "integer"}),
        wire.named_schema("OllamaError", error=wire.TEXT),
    )
