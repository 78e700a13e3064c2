"""The fields of an upstream request for Ollama, except messages and tools.

    {"stop": "X", "temperature": 0.1, "reasoning_effort": "none"}
    -> {"think": false, "options": {"stop": ["X"], "temperature": 0.1}}

Ollama silently ignores unknown fields (decision 0011). Therefore, Temper rejects unknown fields. It
also rejects a request in which two fields set one of Ollama's fields to different values.
"""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.engine_language import COMMON, carry_fields, format_schema, group_in, put_once
from proxy.dialects.field_table import CARRIED, FieldTable, copies, copy_to, refuse, rows
from proxy.errors import InvalidRequest

_OPTIONS = "options"
_NO_PARAMETER = "Ollama has no such parameter."
_TEXT_ONLY = "Ollama returns text only. Remove it."

FIELDS = FieldTable(
    COMMON,
    rows(CARRIED, "stop response_format reasoning_effort chat_template_kwargs"),
    {
        "logit_bias": refuse(f"{_NO_PARAMETER} Remove it.", ({},)),
        "verbosity": refuse(f"{_NO_PARAMETER} Ask for it in the prompt.", ("medium",)),
        "modalities": refuse(_TEXT_ONLY, (["text"],)),
        "audio": refuse(_TEXT_ONLY),
        "web_search_options": refuse("Ollama has no web search. Provide a tool for it."),
        "cache_prompt": refuse("Ollama always uses its prompt cache. Remove it.", (True,)),
        "repetition_penalty": copy_to("options.repeat_penalty"),
    },
    copies("logprobs top_logprobs"),
    copies("temperature top_p top_k min_p typical_p seed presence_penalty", "options."),
    copies("frequency_penalty repeat_penalty repeat_last_n", "options."),
    # fields that only Ollama has
    rows(CARRIED, "think keep_alive options"),
    # With `truncate` or `shift`, Ollama drops parts of a long prompt and still responds with status
    # 200 (decision 0011). Therefore, Temper always sends false.
    rows(
        refuse("Temper never truncates a conversation silently. Remove it.", (False,)),
        "truncate shift",
    ),
    {"format": refuse("Use `response_format`; Temper then also validates the answer.")},
    unknown=refuse("Ollama has no such field. Remove it; its own parameters go under `options`."),
)

# The parameters that Ollama passes to the runner of a model; it silently drops other parameters.
_OPTION_NAMES = """
    frequency_penalty main_gpu min_p num_batch num_ctx num_gpu num_keep num_predict num_thread
    presence_penalty repeat_last_n repeat_penalty seed stop temperature top_k top_p typical_p
    use_mmap
"""
OPTIONS = frozenset(_OPTION_NAMES.split())

# Ollama's `think` is a boolean, or one of three levels
_EFFORTS: dict[str, JsonValue] = {"none": False, "minimal": "low"}
_LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of a model: its name at Ollama, its window and its idle time.

    `num_ctx` is in tokens; None means Ollama's choice. `keep_alive` is a duration such as "5m", or
    a number of seconds. `thinks` is False if Ollama reports that the model cannot reason; for such
    a model, Ollama rejects `think`. With `has_efforts`, the model accepts a level of effort.
    """

    model: str
    num_ctx: int | None = None
    keep_alive: str | float | None = None
    thinks: bool = True
    has_efforts: bool = False


def with_tag(name: str) -> str:
    """Return the name of a model with its tag; Ollama's default is `:latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def body_fields(upstream_request: UpstreamRequest, settings: ModelSettings) -> JsonObject:
    """Write all members of the body except model, messages and tools; raises InvalidRequest."""
    body: JsonObject = {}
    for name, value, target in carry_fields(upstream_request, FIELDS):
        if target:
            put_once(body, target, value, name)
        else:
            _write(body, name, value, settings)
    _write_typed(body, upstream_request, settings)
    load = upstream_request.request.load
    if load.keep_alive is not None:
        put_once(body, "keep_alive", load.keep_alive, "keep_alive")
    if load.options:
        group = group_in(body, _OPTIONS)
        # `num_ctx` is the same in every request, because Ollama reloads the model if it changes
        group |= {name: value for name, value in load.options.items() if name != "num_ctx"}
    # the operator's value applies to requests that do not set `keep_alive`
    if settings.keep_alive is not None:
        body.setdefault("keep_alive", settings.keep_alive)
    if settings.num_ctx is not None:
        group_in(body, _OPTIONS)["num_ctx"] = settings.num_ctx
    options = body.pop(_OPTIONS, None)
    return {**body, _OPTIONS: options} if options else body


def _write_typed(
    body: JsonObject, upstream_request: UpstreamRequest, settings: ModelSettings
) -> None:
    """Write the options that are attributes of the request or of the attempt instead of fields."""
    thinking = upstream_request.request.thinking
    if thinking.is_on is False:
        body["think"] = False
    elif "think" not in body:
        if settings.has_efforts and thinking.effort in _LEVELS:
            body["think"] = _LEVELS[thinking.effort]
        elif thinking.is_on and settings.thinks:
            body["think"] = True
    if upstream_request.stops:
        group_in(body, _OPTIONS)["stop"] = [*upstream_request.stop_strings]
    if upstream_request.request.max_tokens is not None:
        put_once(body, "options.num_predict", upstream_request.request.max_tokens, "max_tokens")
    if upstream_request.schema is not None:
        # The tools are also sent, so that the prompt and its cache stay the same. With a format,
        # Ollama's parsers do not remove calls from the text.
        body["format"] = upstream_request.schema


def _write(body: JsonObject, name: str, value: JsonValue, settings: ModelSettings) -> None:
    match name:
        case "stop":
            put_once(body, "options.stop", [value] if isinstance(value, str) else value, name)
        case "response_format":
            if isinstance(value, dict) and value.get("type") != "text":
                schema = format_schema(value)
                put_once(body, "format", "json" if schema is None else schema, name)
        case "reasoning_effort" | "think" | "chat_template_kwargs":
            put_once(body, "think", _thinking(name, value), name)
        case "keep_alive":
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                problem = 'Expected a duration like "5m", or a number of seconds.'
                raise InvalidRequest(problem, name)
            put_once(body, name, value, name)
        case _:
            _copy_options(body, value, settings)


def _thinking(name: str, value: JsonValue) -> JsonValue:
    if name == "reasoning_effort":
        return _EFFORTS.get(f"{value}", value)
    if name == "chat_template_kwargs":
        if not isinstance(value, dict) or value.keys() != {"enable_thinking"}:
            problem = "Ollama supports only the template variable `enable_thinking`."
            raise InvalidRequest(problem, name)
        value = value["enable_thinking"]
    if not isinstance(value, bool | str):
        problem = 'Expected true, false, "low", "medium" or "high".'
        raise InvalidRequest(problem, name)
    return value


def _copy_options(body: JsonObject, value: JsonValue, settings: ModelSettings) -> None:
    if not isinstance(value, dict):
        raise InvalidRequest("Expected an object with Ollama parameters.", "options")
    for name, option in value.items():
        param = f"options.{name}"
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS - {"num_ctx"}))
            raise InvalidRequest(f"Ollama has no such parameter. Available: {known}.", param)
        if name != "num_ctx":
            put_once(body, param, option, param)
        elif option != settings.num_ctx:  # with another window, Ollama would reload the model
            problem = "The window is the same for all requests; the operator sets "
            raise InvalidRequest(f"{problem}ollama.context_tokens. Remove it.", param)
