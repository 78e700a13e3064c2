"""The fields of a request beside its messages and tools, in Ollama's words.

Nothing is dropped: what Ollama cannot do is refused with the name of the field, and so is the same
thing asked for twice in different ways.
"""

from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question, Thinking
from proxy.dialects.handling import (
    Enforced,
    FieldRule,
    Member,
    Needless,
    Refused,
    form_schema,
    put_once,
)
from proxy.dialects.ollama_chat.schema import FIELDS, OPTIONS, UNKNOWN, Option
from proxy.errors import InvalidRequest

_EFFORTS: dict[str, JsonValue] = {"none": False, "minimal": "low"}
_LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_NOTHING = b"null"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator decided for a model: its name there, its window, how long it stays loaded.

    `num_ctx` counts tokens, None where Ollama decides; `keep_alive` is a duration as Ollama writes
    it, or a number of seconds. It `thinks` unless Ollama says that it cannot, and `has_efforts`
    where it takes a word for how much: Ollama refuses to have others think.
    """

    model: str
    num_ctx: int | None = None
    keep_alive: str | float | None = None
    thinks: bool = True
    has_efforts: bool = False


@dataclass(slots=True)
class _Body:
    """The members and options written so far, with the fields that they came from."""

    members: JsonObject = field(default_factory=dict)
    options: JsonObject = field(default_factory=dict)

    def put(self, name: str, value: JsonValue, param: str) -> None:
        """Write a member."""
        put_once(self.members, name, value, param)

    def set(self, name: str, value: JsonValue, param: str) -> None:
        """Write an option."""
        put_once(self.options, name, value, param)


def body_fields(question: Question, terms: Terms) -> JsonObject:
    """Write all members of the body but model, messages and tools; raises InvalidRequest."""
    body = _Body()
    for name, raw in question.request.fields.items():
        if name not in question.omits and raw.strip() != _NOTHING:
            _write_field(body, name, json.parse(raw), terms)
    _write_wishes(body, question, terms)
    if terms.keep_alive is not None:
        body.members.setdefault("keep_alive", terms.keep_alive)
    if terms.num_ctx is not None:
        body.options["num_ctx"] = terms.num_ctx
    if body.options:
        body.members["options"] = body.options
    return body.members


def _write_wishes(body: _Body, question: Question, terms: Terms) -> None:
    """Write what no field of the client's says, or not in the end."""
    _write_thinking(body, question.request.thinking, terms)
    if question.stops:
        body.options["stop"] = [*question.stop_strings]
    if question.request.max_tokens is not None:
        body.set("num_predict", question.request.max_tokens, "max_tokens")
    if question.schema is not None:
        # Asked for beside `tools` and not instead of them: the prompt stays the same, so does
        # what is cached of it, and with a form no parser of Ollama's finds a call to take out.
        body.members["format"] = question.schema


def _write_field(body: _Body, name: str, value: JsonValue, terms: Terms) -> None:
    match FIELDS.get(name, UNKNOWN):
        case Option(option):
            body.set(option, value, name)
        case Member():
            body.put(name, value, name)
        case Refused(remedy, harmless):
            if value not in harmless:
                raise InvalidRequest(remedy, name)
        case FieldRule():
            _write(body, name, value, terms)
        case Enforced() | Needless():
            pass


def _write(body: _Body, name: str, value: JsonValue, terms: Terms) -> None:
    match name:
        case "stop":
            body.set("stop", [value] if isinstance(value, str) else value, name)
        case "response_format":
            if (form := _answer_form(value)) is not None:
                body.put("format", form, name)
        case "reasoning_effort" | "think" | "chat_template_kwargs":
            body.put("think", _thinking(name, value), name)
        case "keep_alive":
            body.put("keep_alive", _duration(value), name)
        case "options":
            _copy_options(body, value, terms)
        case _:  # model, messages, tools and limits are written elsewhere
            pass


def _answer_form(wanted: JsonValue) -> JsonValue:
    """Return what `format` has to be, None for any text."""
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return None
    schema = form_schema(wanted)
    return "json" if schema is None else schema


def _thinking(name: str, value: JsonValue) -> JsonValue:
    if name == "reasoning_effort":
        return _EFFORTS.get(f"{value}", value)
    if name == "chat_template_kwargs":
        if not isinstance(value, dict) or value.keys() != {"enable_thinking"}:
            problem = "Of all variables of templates, Ollama knows nothing but `enable_thinking`."
            raise InvalidRequest(problem, name)
        value = value["enable_thinking"]
    if not isinstance(value, bool | str):
        problem = 'Expected true, false, or how much: "low", "medium" or "high".'
        raise InvalidRequest(problem, name)
    return value


def _write_thinking(body: _Body, thinking: Thinking, terms: Terms) -> None:
    """Say of thoughts what no field of the client's says; a switch counts more than an effort."""
    if thinking.is_on is False:
        body.members["think"] = False
    elif "think" not in body.members:
        if terms.has_efforts and thinking.effort in _LEVELS:
            body.members["think"] = _LEVELS[thinking.effort]
        elif thinking.is_on and terms.thinks:
            body.members["think"] = True


def _duration(value: JsonValue) -> JsonValue:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise InvalidRequest('Expected a duration like "5m", or a number of seconds.', "keep_alive")


def _copy_options(body: _Body, value: JsonValue, terms: Terms) -> None:
    if not isinstance(value, dict):
        raise InvalidRequest("Expected an object with parameters of Ollama.", "options")
    for name, wanted in value.items():
        param = f"options.{name}"
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS - {"num_ctx"}))
            raise InvalidRequest(f"Ollama has no such parameter. There are: {known}.", param)
        if name == "num_ctx":
            _check_window(wanted, terms)
        else:
            body.set(name, wanted, param)


def _check_window(wanted: JsonValue, terms: Terms) -> None:
    """Refuse another window: Ollama would load the whole model again for it, each time."""
    if wanted != terms.num_ctx:
        problem = "The window is the same for all requests; the operator sets ollama.context_tokens"
        raise InvalidRequest(f"{problem}. Leave it out.", "options.num_ctx")
