"""What a chat completion request looks like on the wire, for checking and for the OpenAPI document.

Lax where clients are lax: null is absent, unknown members are welcome. It checks each member by
itself; what members mean together is the decoder's business.
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
from proxy.dialects.front import Schemas
from proxy.dialects.temper_options import TemperOptions
from proxy.dialects.wire_schema import (
    TEXT,
    Integer,
    Number,
    Object,
    Schema,
    Text,
    TokenCount,
    Unread,
    WireObject,
    check,
    kind_tag,
    object_schema,
    one_of,
    request_schema,
)

_EXPECTED_CHOICE = '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}'

# what the validators beside them demand, for the OpenAPI document
_DATA_URL = {"type": "string", "pattern": "^[Dd][Aa][Tt][Aa]:"}
_EMPTY = {"type": "array", "maxItems": 0}
_ONE = {"const": 1}


def _wrap_url(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


def _inline(url: str) -> str:
    if url[:5].lower() != "data:":
        raise PydanticCustomError(
            "remote", 'Temper never fetches addresses. Send the content itself as a "data:" URL.'
        )
    return url


def _only_one(count: int) -> int:
    if count != 1:
        raise PydanticCustomError(
            "many", "One answer per request is all there is. Leave `n` out or send 1."
        )
    return count


def _refuse_functions(functions: list[JsonValue]) -> list[JsonValue]:
    if functions:
        raise PydanticCustomError("outdated", "Functions are offered as `tools` nowadays.")
    return functions


def _choice_tag(value: object) -> str:
    is_several = isinstance(value, dict) and value.get("type") == "allowed_tools"
    return "<several tools>" if is_several else kind_tag(value)


class InlineUrl(WireObject):
    """A `data:` URL."""

    url: Annotated[StrictStr, AfterValidator(_inline), WithJsonSchema(_DATA_URL)]


Inline: TypeAlias = Annotated[InlineUrl, BeforeValidator(_wrap_url)]


class ContentPart(WireObject):
    """A piece of content: text, an image, audio, a file or something a backend may know."""

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


Parts: TypeAlias = Annotated[list[ContentPart], Field(fail_fast=True), Tag("<an array>")]
Content: TypeAlias = Annotated[Text | Parts, one_of("a string or an array of parts")]


class MadeFunction(WireObject):
    """The function of a call in the history; some clients send arguments as an object."""

    name: StrictStr
    arguments: Annotated[Text | Object, one_of("a string or an object")] | None = None


class MadeCall(WireObject):
    """A tool call in the history."""

    id: StrictStr | None = None
    function: MadeFunction


class ChatMessage(WireObject):
    """One entry of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: StrictStr | None = None
    tool_calls: Annotated[list[MadeCall], Field(fail_fast=True)] | None = None
    tool_call_id: StrictStr | None = None


class OfferedFunction(WireObject):
    """A function the model may call; `parameters` is a JSON schema."""

    name: StrictStr
    description: StrictStr | None = None
    parameters: Schema | None = None
    strict: StrictBool | None = None


class OfferedTool(WireObject):
    """A tool the model may use."""

    type: Literal["function"]
    function: OfferedFunction


class ChosenFunction(WireObject):
    """The function that must be called."""

    name: StrictStr


class ChosenTool(WireObject):
    """The tool that must be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(WireObject):
    """The only tools that may be called, of all that are offered."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ChosenTool], Field(min_length=1, fail_fast=True)]


class SeveralTools(WireObject):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class StreamOptions(WireObject):
    """How a reply is streamed."""

    include_usage: StrictBool | None = None


class AnswerSchema(WireObject):
    """The JSON schema of the answer, with a name that only matters to a backend."""

    schema_: Schema | None = Field(default=None, alias="schema")


class ResponseFormat(AnswerSchema):
    """The form of the answer; llama-server also knows a `schema` beside `json_object`."""

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


class ChatCompletionRequest(WireObject):
    """A chat completion request. Members that are not listed travel to the backend unchanged."""

    model_config = ConfigDict(defer_build=False)

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    model: StrictStr | None = None
    tools: Annotated[list[OfferedTool], Field(fail_fast=True)] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: StrictBool | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    stop: Annotated[Text | StopStrings, one_of("a string or an array of strings")] | None = None
    n: Annotated[Integer, AfterValidator(_only_one), WithJsonSchema(_ONE)] | None = None
    seed: Integer | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Integer | None = None
    logit_bias: dict[str, object] | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: StrictStr | None = None
    store: StrictBool | None = None
    user: StrictStr | None = None
    metadata: dict[str, object] | None = None
    functions: (
        Annotated[list[Unread], AfterValidator(_refuse_functions), WithJsonSchema(_EMPTY)] | None
    ) = None
    temper: TemperOptions | None = None


def validate(body: JsonObject) -> ChatCompletionRequest:
    """Check a request; raises InvalidRequest that names the first field that is wrong."""
    return check(ChatCompletionRequest, body)


_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}


def chat_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error."""
    answer = {"title": "ChatCompletion", **_completion()}
    return Schemas(request_schema(ChatCompletionRequest), answer, count_schema(), error_schema())


def count_schema() -> JsonObject:
    """Describe a count of tokens, in all of OpenAI's languages."""
    kind: JsonObject = {"const": "response.input_tokens"}
    return {"title": "InputTokens", **object_schema(object=kind, input_tokens={"type": "integer"})}


def error_schema() -> JsonObject:
    """Describe an error, in all of OpenAI's languages."""
    error = object_schema(message=TEXT, type=TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
    return {"title": "Error", **object_schema(error=error)}


def _completion() -> JsonObject:
    function = object_schema(name=TEXT, arguments=TEXT)
    call = object_schema(id=TEXT, type={"const": "function"}, function=function)
    calls: JsonObject = {"type": "array", "items": call}
    message = object_schema(role={"const": "assistant"}, content=_TEXT_OR_NULL, tool_calls=calls)
    message["required"] = ["role", "content"]
    choice = object_schema(index={"const": 0}, message=message, finish_reason=TEXT)
    return object_schema(
        id=TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=TEXT,
        choices={"type": "array", "items": choice},
        usage={"type": ["object", "null"]},
    )
