"""The fields of a request beside its messages and tools, in Ollama's words.

Ollama ignores what it does not know, so nothing may reach it that it would drop in silence. What it
cannot do is refused with the name of the field, and so is the same thing asked for twice in
different ways.
"""

from dataclasses import dataclass, field

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question, Thinking
from proxy.dialects.engine_language import carry_fields, form_schema, put_once
from proxy.dialects.field_table import (
    CARRIED,
    ENFORCED,
    IGNORED,
    FieldTable,
    copies,
    copy_to,
    refuse,
    rows,
)
from proxy.errors import InvalidRequest

_OPTIONS = "options"
_NO_PARAMETER = "Ollama has no such parameter."
_TEXT_ONLY = "Ollama answers with text only. Leave it out."
_NEVER_CUT = refuse("A conversation is never cut in silence. Leave it out.", (False,))

FIELDS = FieldTable(
    # what OpenAI's clients send; the first are written by `encode`, or seen to by Temper
    rows(ENFORCED, "model messages tools max_tokens max_completion_tokens tool_choice"),
    rows(ENFORCED, "parallel_tool_calls functions stream stream_options n temper"),
    rows(CARRIED, "stop response_format reasoning_effort"),
    {
        "function_call": refuse("Offer `tools` and use `tool_choice`.", ("auto", "none")),
        "logit_bias": refuse(f"{_NO_PARAMETER} Leave it out.", ({},)),
        "verbosity": refuse(f"{_NO_PARAMETER} Ask for it in words.", ("medium",)),
        "modalities": refuse(_TEXT_ONLY, (["text"],)),
        "audio": refuse(_TEXT_ONLY),
        "web_search_options": refuse("Ollama searches nothing. Offer a tool for it."),
    },
    copies("logprobs top_logprobs"),
    rows(IGNORED, "prediction store user metadata service_tier safety_identifier"),
    rows(IGNORED, "prompt_cache_key prompt_cache_retention"),
    # what clients of other engines send
    {
        "chat_template_kwargs": CARRIED,
        "cache_prompt": refuse("Ollama always uses its prompt cache. Leave it out.", (True,)),
        "repetition_penalty": copy_to("options.repeat_penalty"),
    },
    copies("temperature top_p top_k min_p typical_p seed presence_penalty", "options."),
    copies("frequency_penalty repeat_penalty repeat_last_n", "options."),
    # Ollama's own
    rows(CARRIED, "think keep_alive options"),
    {
        "format": refuse("Use `response_format`: the answer is then checked as well."),
        "truncate": _NEVER_CUT,
        "shift": _NEVER_CUT,
    },
    unknown=refuse(
        "Ollama knows no such field. Leave it out; its own parameters go under `options`."
    ),
)

# The parameters that Ollama hands on to the runner of a model; it drops any other without a word.
_OPTION_NAMES = """
    frequency_penalty main_gpu min_p num_batch num_ctx num_gpu num_keep num_predict num_thread
    presence_penalty repeat_last_n repeat_penalty seed stop temperature top_k top_p typical_p
    use_mmap
"""
OPTIONS = frozenset(_OPTION_NAMES.split())

_EFFORTS: dict[str, JsonValue] = {"none": False, "minimal": "low"}
_LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


@dataclass(frozen=True, slots=True)
class ModelSettings:
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
    """The members and options written so far."""

    members: JsonObject = field(default_factory=dict)
    options: JsonObject = field(default_factory=dict)

    def put(self, target: str, value: JsonValue, param: str) -> None:
        """Write a member, or an option if the target is one, for the field `param`."""
        group, _, name = target.rpartition(".")
        put_once(self.options if group == _OPTIONS else self.members, name, value, param)


def body_fields(question: Question, terms: ModelSettings) -> JsonObject:
    """Write all members of the body but model, messages and tools; raises InvalidRequest."""
    body = _Body()
    for name, value, target in carry_fields(question, FIELDS):
        if target:
            body.put(target, value, name)
        else:
            _write(body, name, value, terms)
    _write_wishes(body, question, terms)
    if terms.keep_alive is not None:
        body.members.setdefault("keep_alive", terms.keep_alive)
    if terms.num_ctx is not None:
        body.options["num_ctx"] = terms.num_ctx
    if body.options:
        body.members[_OPTIONS] = body.options
    return body.members


def _write_wishes(body: _Body, question: Question, terms: ModelSettings) -> None:
    """Write what no field of the client's says, or not in the end."""
    _write_thinking(body, question.request.thinking, terms)
    if question.stops:
        body.options["stop"] = [*question.stop_strings]
    if question.request.max_tokens is not None:
        body.put("options.num_predict", question.request.max_tokens, "max_tokens")
    if question.schema is not None:
        # Asked for beside `tools` and not instead of them: the prompt stays the same, so does
        # what is cached of it, and with a form no parser of Ollama's finds a call to take out.
        body.members["format"] = question.schema


def _write(body: _Body, name: str, value: JsonValue, terms: ModelSettings) -> None:
    match name:
        case "stop":
            body.put("options.stop", [value] if isinstance(value, str) else value, name)
        case "response_format":
            if (form := _answer_form(value)) is not None:
                body.put("format", form, name)
        case "reasoning_effort" | "think" | "chat_template_kwargs":
            body.put("think", _thinking(name, value), name)
        case "keep_alive":
            body.put("keep_alive", _duration(value), name)
        case _:
            _copy_options(body, value, terms)


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


def _write_thinking(body: _Body, thinking: Thinking, terms: ModelSettings) -> None:
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


def _copy_options(body: _Body, value: JsonValue, terms: ModelSettings) -> None:
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
            body.put(param, wanted, param)


def _check_window(wanted: JsonValue, terms: ModelSettings) -> None:
    """Refuse another window: Ollama would load the whole model again for it, each time."""
    if wanted != terms.num_ctx:
        problem = "The window is the same for all requests; the operator sets ollama.context_tokens"
        raise InvalidRequest(f"{problem}. Leave it out.", "options.num_ctx")
