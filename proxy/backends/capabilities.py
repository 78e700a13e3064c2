"""Features that an engine may lack, how its refusals name them, and questions without them.

Everything here is pure: the adapter remembers which engine refused what, and for how long.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum

from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, Question
from proxy.conversation.tools import NamedTool, ToolUse
from proxy.dialects.openai_chat.thinking import EFFORT, VARIABLES, thinking_fields
from proxy.errors import BackendRefused


def directives(question: Question) -> JsonObject:
    """Return the fields that constrain an unknown engine's output.

    Every engine knows the constraint `required`. If tools are described in the prompt, a schema
    takes its place.
    """
    if not question.tools:
        return answer_form(question)
    fields: JsonObject = {}
    if question.calls_singly and "parallel_tool_calls" not in question.request.fields:
        fields["parallel_tool_calls"] = False
    if question.schema is not None:
        return {**fields, "tool_choice": "required"}
    is_raw = question.parsing is Parsing.OURS or question.tool_choice is ToolUse.NONE
    return {**fields, "tool_choice": "none"} if is_raw else fields


def answer_form(question: Question) -> JsonObject:
    """Return the field that binds the whole output to the question's schema, if it has one."""
    if question.schema is None:
        return {}
    schema: JsonObject = {"name": "tool_call", "schema": question.schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


class Capability(Enum):
    """Something that most engines have; the value says what happens without it."""

    TOOL_PARSER = (
        "its answers are parsed here: start it with a tool-call parser (vLLM: "
        "--enable-auto-tool-choice --tool-call-parser NAME), or set profile.tools_in_prompt if it "
        "leaves the tools out of the prompt"
    )
    NAMED_CHOICE = "a named tool_choice is sent as 'required'"
    REQUIRED_CHOICE = "tool_choice 'required' is sent as 'auto'"
    PARALLEL_CHOICE = "parallel_tool_calls is left out"
    STREAM_USAGE = "stream_options is left out, so it may report no usage"
    COMPLETION_LIMIT = "max_completion_tokens is sent as max_tokens"
    PLAIN_LIMIT = "max_tokens is sent as max_completion_tokens"
    EFFORT = "what clients say of effort in other words than reasoning_effort is left out"
    TEMPLATE_VARIABLES = "chat_template_kwargs is not added, so thinking cannot be switched"


_THOUGHTS = {Capability.EFFORT: EFFORT, Capability.TEMPLATE_VARIABLES: VARIABLES}
_BAD_REQUEST = frozenset({400, 404, 422, 501})
# what a refusal mentions; that of a missing parser is known by its advice
_BLAMED = {
    Capability.NAMED_CHOICE: ("tool_choice",),
    Capability.REQUIRED_CHOICE: ("tool_choice",),
    Capability.PARALLEL_CHOICE: ("parallel_tool_calls",),
    Capability.STREAM_USAGE: ("stream_options",),
    Capability.PLAIN_LIMIT: ("max_tokens", "max_completion_tokens"),
    Capability.COMPLETION_LIMIT: ("max_completion_tokens",),
    Capability.EFFORT: (EFFORT,),
    # vLLM with the tokenizers of Mistral: "chat_template is not supported"
    Capability.TEMPLATE_VARIABLES: ("chat_template",),
}
_LIMITS = {
    Capability.COMPLETION_LIMIT: ("max_completion_tokens", "max_tokens"),
    Capability.PLAIN_LIMIT: ("max_tokens", "max_completion_tokens"),
}
# how engines say that they do not know a field: OpenAI, pydantic (vLLM, Mistral), Go (LocalAI)
_UNKNOWN = (
    "unsupported", "not supported", "not support", "not permitted", "unrecognized", "unknown",
    "unexpected", "not allowed", "invalid",
)  # fmt: skip


def missing_capability(
    refusal: BackendRefused, question: Question, lacks: Collection[Capability]
) -> Capability | None:
    """Return another feature that caused a refusal; None if the reason was different.

    The question was sent without the features that the engine was known to lack.

    vLLM without a parser refuses "auto" and since 0.13 the others too (vllm#30613); LM Studio
    refuses objects (lmstudio-bug-tracker#670); OpenAI's newer models know max_tokens no more, and
    tell `param` and "use 'max_completion_tokens' instead".
    """
    if refusal.status not in _BAD_REQUEST:
        return None
    said = refusal.message.lower()
    if "--tool-call-parser" in said or "--enable-auto-tool-choice" in said:
        is_news = question.tools and Capability.TOOL_PARSER not in lacks
        return Capability.TOOL_PARSER if is_news else None
    if not any(word in said for word in _UNKNOWN):
        return None
    blamed = f"{refusal.param.lower()} {said}"
    suspects = (one for one in _USES if one not in lacks and _is_blamed(one, blamed))
    return next((one for one in suspects if _USES[one](question)), None)


def _is_blamed(capability: Capability, said: str) -> bool:
    words = _BLAMED.get(capability, ())
    return bool(words) and all(word in said for word in words)


def _sends_named(question: Question) -> bool:
    return isinstance(question.tool_choice, NamedTool) and bool(question.tools)


def _sends_required(question: Question) -> bool:
    is_asked = question.tool_choice is ToolUse.REQUIRED or question.schema is not None
    return (is_asked or _sends_named(question)) and bool(question.tools)


def _adds_effort(question: Question) -> bool:
    return EFFORT in thinking_fields(question.request)


def _adds_variables(question: Question) -> bool:
    return VARIABLES in thinking_fields(question.request)


def _sends_parallel(question: Question) -> bool:
    return "parallel_tool_calls" in {**question.request.fields, **directives(question)}


# what a question has to send to be refused for it, in the order of suspicion
_USES: Mapping[Capability, Callable[[Question], bool]] = {
    Capability.NAMED_CHOICE: _sends_named,
    Capability.REQUIRED_CHOICE: _sends_required,
    Capability.PARALLEL_CHOICE: _sends_parallel,
    Capability.STREAM_USAGE: lambda question: True,
    Capability.PLAIN_LIMIT: lambda question: "max_tokens" in question.request.fields,
    Capability.COMPLETION_LIMIT: (
        lambda question: "max_completion_tokens" in question.request.fields
    ),
    Capability.EFFORT: _adds_effort,
    Capability.TEMPLATE_VARIABLES: _adds_variables,
}


def without(question: Question, lacks: Collection[Capability]) -> Question:
    """Leave out of a question what an engine refuses."""
    omits = set(question.omits)
    if Capability.STREAM_USAGE in lacks:
        omits.add("stream_options")
    if Capability.PARALLEL_CHOICE in lacks:
        omits.add("parallel_tool_calls")
    omits |= {names[0] for limit, names in _LIMITS.items() if limit in lacks}
    return question if omits == question.omits else replace(question, omits=frozenset(omits))


def directives_without(question: Question, lacks: Collection[Capability]) -> JsonObject:
    """Return the fields that constrain the output of an engine that lacks something.

    Without a parser a schema takes the place of `required`: vLLM keeps the tools in the prompt
    with "none" (unless --exclude-tools-when-tool-choice-none), and the raw text comes back.
    """
    fields = directives(question)
    fields |= _limits(question, lacks) | _thoughts(question, lacks)
    if Capability.PARALLEL_CHOICE in lacks:
        fields.pop("parallel_tool_calls", None)
    if not question.tools:
        return fields
    if Capability.TOOL_PARSER in lacks:
        return {**fields, "tool_choice": "none", **answer_form(question)}
    choice = fields.get("tool_choice")
    if _sends_named(question) and choice is None and Capability.NAMED_CHOICE in lacks:
        choice = fields["tool_choice"] = "required"
    sends_required = choice == "required" or question.tool_choice is ToolUse.REQUIRED
    if sends_required and choice != "none" and Capability.REQUIRED_CHOICE in lacks:
        fields["tool_choice"] = "auto"
    return fields


def _limits(question: Question, lacks: Collection[Capability]) -> JsonObject:
    """Give the limit of the answer the name that the engine knows."""
    return {
        known: question.request.max_tokens
        for limit, (sent, known) in _LIMITS.items()
        if limit in lacks and sent in question.request.fields
    }


def _thoughts(question: Question, lacks: Collection[Capability]) -> JsonObject:
    """Tell what was said of thoughts, in what the engine knows of the words for it."""
    unknown = {name for capability, name in _THOUGHTS.items() if capability in lacks}
    told = thinking_fields(question.request)
    return {name: value for name, value in told.items() if name not in unknown}
