"""What a chat completion request looks like on the wire, for checking and for the OpenAPI document.

Lax where clients are lax: null is absent, unknown members are welcome. It checks each member by
itself; what members mean together is the decoder's business.
"""

from threading import Lock
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    JsonValue,
    SkipValidation,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.json_schemas import TEXT, object_schema, request_schema
from proxy.dialects.raw_json import kind
from proxy.errors import InvalidRequest

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_type": "an object",
    "string_type": "a string",
}
_LONGEST_QUOTE = 40
_EXPECTED_CHOICE = '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}'

# what the validators beside them demand, for the OpenAPI document
_DATA_URL = {"type": "string", "pattern": "^[Dd][Aa][Tt][Aa]:"}
_EMPTY = {"type": "array", "maxItems": 0}
_ONE = {"const": 1}


def _tag(value: object) -> str:
    return f"<{kind(value)}>"


def one_of(expected: str) -> Discriminator:
    """Choose between types by the JSON type of the value, so that one clear error is reported."""
    return Discriminator(_tag, custom_error_type="expected", custom_error_message=expected)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _wrapped_url(value: object) -> object:
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


def _offered_as_tools(functions: list[JsonValue]) -> list[JsonValue]:
    if functions:
        raise PydanticCustomError("outdated", "Functions are offered as `tools` nowadays.")
    return functions


def _choice_tag(value: object) -> str:
    is_several = isinstance(value, dict) and value.get("type") == "allowed_tools"
    return "<several tools>" if is_several else _tag(value)


Number: TypeAlias = Annotated[FiniteFloat, Strict()]
Integer: TypeAlias = Annotated[StrictInt, BeforeValidator(_whole)]
TokenCount: TypeAlias = Annotated[StrictInt, Field(ge=0), BeforeValidator(_whole)]
Text: TypeAlias = Annotated[StrictStr, Tag("<a string>")]
# What is inside was parsed as JSON and is of no interest: looking at it takes 1 ms for 40 schemas.
Unread: TypeAlias = SkipValidation[JsonValue]
Object: TypeAlias = Annotated[dict[str, Unread], Tag("<an object>")]
Boolean: TypeAlias = Annotated[StrictBool, Tag("<a boolean>")]
Schema: TypeAlias = Annotated[Object | Boolean, one_of("an object, a boolean or null")]


Checked = TypeVar("Checked", bound=BaseModel)


_building = Lock()


class WireObject(BaseModel):
    """An object of which only some members are of interest here."""

    # keeping what is of no interest would take as long as checking the rest
    # What checks is made when it is first used: most servers hear one or two languages only.
    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"additionalProperties": True}, defer_build=True
    )


class InlineUrl(WireObject):
    """A `data:` URL."""

    url: Annotated[StrictStr, AfterValidator(_inline), WithJsonSchema(_DATA_URL)]


Inline: TypeAlias = Annotated[InlineUrl, BeforeValidator(_wrapped_url)]


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


class NeededCall(BaseModel):
    """`tool` may only be called after `needs`, with the same `argument` if one is named."""

    model_config = ConfigDict(extra="forbid")

    tool: StrictStr
    needs: StrictStr
    argument: StrictStr | None = None


class WorkflowRules(BaseModel):
    """In which order tools may be called."""

    model_config = ConfigDict(extra="forbid")

    required_steps: list[StrictStr] = []
    prerequisites: list[NeededCall] = []
    terminal_tools: list[StrictStr] = []


class TemperOptions(BaseModel):
    """What a client tells Temper and no backend."""

    model_config = ConfigDict(extra="forbid")

    workflow: WorkflowRules | None = None
    tool_rounds: StrictBool | None = None


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
        Annotated[list[Unread], AfterValidator(_offered_as_tools), WithJsonSchema(_EMPTY)] | None
    ) = None
    temper: TemperOptions | None = None


def validate(body: JsonObject) -> ChatCompletionRequest:
    """Check a request; raises InvalidRequest that names the first field that is wrong."""
    return check(ChatCompletionRequest, body)


def check(wire: type[Checked], body: JsonObject) -> Checked:
    """Check what came on the wire; raises InvalidRequest that names the first wrong field."""
    if not wire.__pydantic_complete__:
        with _building:  # large requests are checked by threads of their own
            wire.model_rebuild()
    try:
        return wire.model_validate(body)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        raise InvalidRequest(_problem(first), _path(first)) from None


def _path(error: ErrorDetails) -> str:
    steps = (str(step) for step in error["loc"])
    return ".".join(step for step in steps if not step.startswith("<"))


def _problem(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "This member is required, and it is missing."
        case "literal_error":
            expected = f"{context['expected']}"
        case "greater_than_equal":
            expected = f"a number of at least {context['ge']}"
        case "too_short":
            expected = f"at least {context['min_length']} element"
        case "extra_forbidden":
            return "There is no such option."
        case "expected":
            expected = error["msg"]
        case other if other in _EXPECTED:
            expected = _EXPECTED[other]
        case _:
            return error["msg"]
    return f"Expected {expected}, got {_shown(error['input'])}."


def _shown(value: object) -> str:
    match value:
        case str():
            cut = value if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]}..."
            return f"the string {cut!r}"
        case bool():
            return f"{value}".lower()
        case int() | float():
            return f"the number {f'{value}'[:_LONGEST_QUOTE]}"
        case []:
            return "an empty array"
        case _:
            return kind(value)


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
