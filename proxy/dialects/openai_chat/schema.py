"""The wire format of a chat completion request, for validation and for the OpenAPI document.

Validation is as lenient as clients require: null counts as absent. Unknown members are accepted,
because engines have fields that Temper does not know. This module checks each member by itself; the
decoder checks combinations of members.
"""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    StrictStr,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from proxy.conversation.json import JsonObject
from proxy.dialects import wire_schema as wire
from proxy.dialects.dialect import Schemas

_EXPECTED_CHOICE = '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}'

# constraints that the validators enforce, as JSON schemas for the OpenAPI document
_DATA_URL = {"type": "string", "pattern": "^[Dd][Aa][Tt][Aa]:"}
_EMPTY = {"type": "array", "maxItems": 0}
_ONE = {"const": 1}


def _wrap_url(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


def _require_data_url(url: str) -> str:
    # any other URL would be fetched by Temper or the engine on behalf of the client (F39)
    if url[:5].lower() != "data:":
        raise PydanticCustomError(
            "remote", 'Temper never fetches addresses. Send the content itself as a "data:" URL.'
        )
    return url


def _only_one(count: int) -> int:
    if count != 1:
        raise PydanticCustomError(
            "many", "Only one completion per request is supported. Remove `n` or set it to 1."
        )
    return count


def _refuse_functions(functions: list[JsonValue]) -> list[JsonValue]:
    if functions:
        raise PydanticCustomError("outdated", "Use `tools`; `functions` is deprecated.")
    return functions


def _choice_tag(value: object) -> str:
    is_several = isinstance(value, dict) and value.get("type") == "allowed_tools"
    return "<several tools>" if is_several else wire.kind_tag(value)


class InlineUrl(wire.WireObject):
    """A `data:` URL."""

    url: Annotated[StrictStr, AfterValidator(_require_data_url), WithJsonSchema(_DATA_URL)]


Inline: TypeAlias = Annotated[InlineUrl, BeforeValidator(_wrap_url)]


class ContentPart(wire.WireObject):
    """A part of content: text, an image, audio, a file or a type that the engine may know."""

    type: StrictStr
    text: StrictStr | None = None
    image_url: Inline | None = None
    audio_url: Inline | None = None
    video_url: Inline | None = None
    input_audio: dict[str, object] | None = None
    file: dict[str, object] | None = None

    @model_validator(mode="after")
    def _has_its_text(self) -> Self:
        if self.type == "text" and self.text is None:
            raise PydanticCustomError("textless", 'A part of type "text" needs a string `text`.')
        return self


# fail_fast: only the first error is reported, and a body may contain thousands (F33, F80)
Parts: TypeAlias = Annotated[list[ContentPart], Field(fail_fast=True), Tag("<an array>")]
Content: TypeAlias = Annotated[wire.Text | Parts, wire.one_of("a string or an array of parts")]


class MadeFunction(wire.WireObject):
    """The function of a call in the history; some clients send arguments as an object."""

    name: StrictStr
    arguments: Annotated[wire.Text | wire.Object, wire.one_of("a string or an object")] | None = (
        None
    )


class MadeCall(wire.WireObject):
    """A tool call in the history."""

    id: StrictStr | None = None
    function: MadeFunction


class ChatMessage(wire.WireObject):
    """One entry of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: StrictStr | None = None
    tool_calls: Annotated[list[MadeCall], Field(fail_fast=True)] | None = None
    tool_call_id: StrictStr | None = None


class OfferedFunction(wire.WireObject):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: StrictStr
    description: StrictStr | None = None
    parameters: wire.Schema | None = None
    strict: StrictBool | None = None


class OfferedTool(wire.WireObject):
    """A tool that the model may use."""

    type: Literal["function"]
    function: OfferedFunction


class ChosenFunction(wire.WireObject):
    """The function that must be called."""

    name: StrictStr


class ChosenTool(wire.WireObject):
    """The tool that must be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(wire.WireObject):
    """The tools that may be called, of all that are offered."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ChosenTool], Field(min_length=1, fail_fast=True)]


class SeveralTools(wire.WireObject):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class StreamOptions(wire.WireObject):
    """Options of a stream; with `include_usage` its last chunk has the token counts."""

    include_usage: StrictBool | None = None


class AnswerSchema(wire.WireObject):
    """The JSON schema of the answer; its name matters only to the engine."""

    schema_: wire.Schema | None = Field(default=None, alias="schema")


class ResponseFormat(AnswerSchema):
    """The format of the answer; llama-server also accepts a `schema` next to `json_object`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None


ChoiceWord: TypeAlias = Annotated[Literal["auto", "none", "required"], Tag("<a string>")]
Choice: TypeAlias = Annotated[
    ChoiceWord
    | Annotated[ChosenTool, Tag("<an object>")]
    | Annotated[SeveralTools, Tag("<several tools>")],
    Discriminator(_choice_tag, custom_error_type="expected", custom_error_message=_EXPECTED_CHOICE),
]
StopStrings: TypeAlias = Annotated[list[StrictStr], Field(fail_fast=True), Tag("<an array>")]


class ChatCompletionRequest(wire.WireObject):
    """A chat completion request. Members that are not listed are sent to the backend unchanged."""

    # built at import, because nearly every client sends this request; others are built when used
    model_config = ConfigDict(defer_build=False)

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    model: StrictStr | None = None
    tools: Annotated[list[OfferedTool], Field(fail_fast=True)] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: StrictBool | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: wire.TokenCount | None = None
    max_completion_tokens: wire.TokenCount | None = None
    temperature: wire.Number | None = None
    top_p: wire.Number | None = None
    presence_penalty: wire.Number | None = None
    frequency_penalty: wire.Number | None = None
    stop: (
        Annotated[wire.Text | StopStrings, wire.one_of("a string or an array of strings")] | None
    ) = None
    n: Annotated[wire.Integer, AfterValidator(_only_one), WithJsonSchema(_ONE)] | None = None
    seed: wire.Integer | None = None
    logprobs: StrictBool | None = None
    top_logprobs: wire.Integer | None = None
    logit_bias: dict[str, object] | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: StrictStr | None = None
    store: StrictBool | None = None
    user: StrictStr | None = None
    metadata: dict[str, object] | None = None
    functions: (
        Annotated[list[wire.Unread], AfterValidator(_refuse_functions), WithJsonSchema(_EMPTY)]
        | None
    ) = None
    temper: wire.TemperOptions | None = None


_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}


def chat_schemas() -> Schemas:
    request = wire.request_schema(ChatCompletionRequest)
    return Schemas(request, _completion(), count_schema(), error_schema())


def count_schema() -> JsonObject:
    """Describe a token count, which is the same in all of OpenAI's APIs."""
    kind: JsonObject = {"const": "response.input_tokens"}
    return wire.named_schema("InputTokens", object=kind, input_tokens={"type": "integer"})


def error_schema() -> JsonObject:
    """Describe an error, which is the same in all of OpenAI's APIs."""
    words = {"message": wire.TEXT, "type": wire.TEXT}
    error = wire.object_schema(**words, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
    return wire.named_schema("Error", error=error)


def _completion() -> JsonObject:
    function = wire.object_schema(name=wire.TEXT, arguments=wire.TEXT)
    call = wire.object_schema(id=wire.TEXT, type={"const": "function"}, function=function)
    calls: JsonObject = {"type": "array", "items": call}
    message = wire.object_schema(
        role={"const": "assistant"}, content=_TEXT_OR_NULL, tool_calls=calls
    )
    message["required"] = ["role", "content"]
    choice = wire.object_schema(index={"const": 0}, message=message, finish_reason=wire.TEXT)
    return wire.named_schema(
        "ChatCompletion",
        id=wire.TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=wire.TEXT,
        choices={"type": "array", "items": choice},
        usage={"type": ["object", "null"]},
    )
