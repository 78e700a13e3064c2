"""The features that engines lack or refuse, and upstream requests without them.

    400 {"message": "tool_choice must be auto or none"}
    -> NAMED_CHOICE and REQUIRED_CHOICE are suspected; the request is sent again with the
       tool_choice "required" in place of a named tool

The functions are pure. Only `LearnedRefusals`, which stores the refused features, has state.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeAlias

from msgspec.structs import replace

from proxy.backends.affinity import conversation_key
from proxy.backends.refusals import MOST_CHARACTERS, contains_any, wordings
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, Messages
from proxy.conversation.requests import Parsing, Request, UpstreamRequest
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.dialects.lenient_json import as_object, parse_object
from proxy.dialects.openai_chat.thinking import (
    EFFORT,
    RANKS,
    VARIABLES,
    effort_in,
    fit_effort,
    thinking_fields,
)
from proxy.errors import BackendRefused
from proxy.guardrails.history_repair import refused_forms
from proxy.guardrails.history_repair.history import CONTINUE, fit_roles
from proxy.guardrails.model_quirks import SystemRole, Template
from proxy.guardrails.schemas.rewriting import call_schema, simplify, simplify_for_grammar
from proxy.guardrails.tool_prompts.history import find_convention
from proxy.inference.plan import RESPONSE_FORMAT, PromptFormat

logger = logging.getLogger(__name__)


def directives(upstream_request: UpstreamRequest) -> JsonObject:
    """Return the fields that constrain an unknown engine's output.

    Every engine knows `tool_choice: "required"`, but accepts it only together with tools. If the
    prompt describes the tools instead, a schema for the whole output constrains the reply.
    """
    if not upstream_request.tools:
        return response_format_of(upstream_request)
    fields: JsonObject = {}
    if (
        upstream_request.calls_singly
        and "parallel_tool_calls" not in upstream_request.request.fields
    ):
        fields["parallel_tool_calls"] = False
    if upstream_request.schema is not None:
        return {**fields, "tool_choice": "required"}
    is_raw = (
        upstream_request.parsing is Parsing.OURS or upstream_request.tool_choice is ToolUse.NONE
    )
    return {**fields, "tool_choice": "none"} if is_raw else fields


def response_format_of(upstream_request: UpstreamRequest) -> JsonObject:
    """Return the field that constrains the output to the request's schema; {} without a schema."""
    if upstream_request.schema is None:
        return {}
    schema: JsonObject = {"name": "tool_call", "schema": upstream_request.schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


class Capability(Enum):
    """A feature of most engines; the value says what Temper does if an engine lacks the feature."""

    TOOL_PARSER = (
        "Temper parses the tool calls: start the engine with a tool-call parser (vLLM: "
        "--enable-auto-tool-choice --tool-call-parser NAME), or set profile.tools_in_prompt if the "
        "engine omits the tools from the prompt"
    )
    NAMED_CHOICE = "a named tool_choice is sent as 'required'"
    REQUIRED_CHOICE = "tool_choice 'required' is sent as 'auto'"
    BOUND_ARGUMENTS = "'required' does not constrain arguments: the last attempt sends strict tools"
    STRICT_TOOLS = (
        "strict tools do not constrain arguments: the last attempt constrains the text with a "
        "schema"
    )
    BOUND_TEXT = "no constraint is enforced: the last attempt is only validated"
    PARALLEL_CHOICE = "parallel_tool_calls is not sent"
    STREAM_USAGE = "stream_options is not sent, so usage may be missing"
    COMPLETION_LIMIT = "max_completion_tokens is sent as max_tokens"
    PLAIN_LIMIT = "max_tokens is sent as max_completion_tokens"
    EFFORT = "effort is not sent, unless the client itself sends reasoning_effort"
    TEMPLATE_VARIABLES = "chat_template_kwargs is not added: Temper cannot control reasoning"
    REPLY_PARSER = "the engine's parser failed on a reply; Temper parses replies instead"
    TOOLS = "tools are described in the prompt, and Temper parses the calls"
    RICH_SCHEMAS = (
        "schemas are simplified for its grammar; arguments are validated against the original "
        "schemas"
    )
    EFFORT_WORDS = "an unsupported reasoning effort is replaced by the nearest supported effort"
    LATE_SYSTEM = "leading system messages are joined, later ones become user messages"
    SYSTEM_ROLE = "system messages become user messages"
    DEVELOPER_ROLE = "developer messages are sent as system messages"
    REPEATED_ROLES = "consecutive messages of one role are joined"
    THOUGHTFUL_PREFILL = "reasoning is disabled if the history ends with an assistant message"
    PREFILL = "a user message 'Continue.' is added after a final assistant message"
    USERLESS = "a user message 'Continue.' is added if there is no user message"
    USER_AFTER_TOOL = "an assistant message 'OK.' is added between a tool result and a user message"
    LONG_CALL_IDS = "call ids are sent as nine letters and digits"
    TEXT_BESIDE_THINKING = "text of a message with reasoning and calls is sent as reasoning"
    CALLS_WITHOUT_THINKING = "messages with calls get an empty reasoning_content if they have none"
    EMPTY_ANSWERS = "an empty assistant message gets the text '(no answer)'"
    BARE_SCHEMAS = "tools without parameters are sent with an empty list of properties"
    STRICT_FIELD = "strict is removed from tools: Temper validates arguments"
    RESULT_PICTURES = "images in tool results are sent in a user message after them"
    PICTURES = "images of earlier turns and of tool results become a note; new images are rejected"


Lacks: TypeAlias = Mapping[Capability, str]
"""The features that an engine lacks, each with a detail.

The detail of `EFFORT_WORDS` are the supported efforts; the detail of any other feature is "".
"""

# missing feature -> the field in which the reasoning setting is then not sent
_THOUGHTS = {Capability.EFFORT: EFFORT, Capability.TEMPLATE_VARIABLES: VARIABLES}
_BAD_REQUEST = frozenset({400, 404, 422, 501})  # statuses with which engines refuse a field
# feature -> the words of a refusal that blame the feature; the most likely feature comes first.
# TOOL_PARSER is not in this table: an engine without a tool-call parser names no field in its
# refusal, only command-line flags.
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
# missing feature -> the field that is omitted, and the field that replaces it ("" for no field)
_OMITTED = {
    Capability.COMPLETION_LIMIT: ("max_completion_tokens", "max_tokens"),
    Capability.PLAIN_LIMIT: ("max_tokens", "max_completion_tokens"),
    Capability.STREAM_USAGE: ("stream_options", ""),
    Capability.PARALLEL_CHOICE: ("parallel_tool_calls", ""),
    Capability.TEMPLATE_VARIABLES: (VARIABLES, ""),
}
# words in the refusals of unknown fields by OpenAI, pydantic (vLLM, Mistral) and Go (LocalAI)
_UNKNOWN = (
    "unsupported", "not supported", "not support", "not permitted", "unrecognized", "unknown",
    "unexpected", "not allowed", "invalid",
)  # fmt: skip
# Refusals of a reasoning effort. Ollama: "invalid think value"; pydantic: "Input should be 'low',
# 'medium' or 'high'".
_EFFORTS = re.compile(r"reasoning[ _]effort|think value|input should be ['\"]", re.IGNORECASE)


def is_unreadable(refusal: BackendRefused, messages: Messages = ()) -> bool:
    """Return whether the engine's parser failed on the reply, so that its text is lost.

    Engines use the same words for invalid arguments in the history ("Failed to parse tool call
    arguments as JSON", llama-server 11669). So the result is False if the history has such a call.
    """
    # llama-server and Ollama send no error code for this failure
    if refusal.status != 500 or not contains_any(wordings().unreadable, refusal.message):
        return False
    return not any(map(_has_bad_call, messages))


def _has_bad_call(message: Message) -> bool:
    return any(parse_object(call.arguments) is None for call in message.calls)


def refuses_pictures(refusal: BackendRefused) -> bool:
    return contains_any(wordings().blind, refusal.message)


def suspected_features(
    refusal: BackendRefused, upstream_request: UpstreamRequest
) -> Iterator[tuple[Capability, str]]:
    """Yield the features that may have caused a refusal, the most likely first, with their details.

    vLLM without a tool-call parser refuses the tool_choice "auto", and since 0.13 every other
    tool_choice as well (vllm#30613). LM Studio refuses a tool_choice that is an object
    (lmstudio-bug-tracker#670). OpenAI's newer models refuse max_tokens: they name it in `param` and
    add "use 'max_completion_tokens' instead".
    """
    # llama-server and vLLM answer with 500 if the chat template raises an exception
    if refusal.status not in _BAD_REQUEST and refusal.status != 500:
        return
    message = refusal.message[:MOST_CHARACTERS]
    is_about_effort = _EFFORTS.search(f"{refusal.param} {message}") is not None
    if is_about_effort and (efforts := _efforts_offered(message, upstream_request.request)):
        yield Capability.EFFORT_WORDS, efforts
    for known in wordings().refusals:
        if contains_any(known.wordings, message):
            yield from ((Capability[name], "") for name in known.blamed)
            return
    if refusal.status in _BAD_REQUEST:
        yield from (
            (capability, "")
            for capability in _features_of_blamed_fields(message.lower(), refusal.param.lower())
        )


def _features_of_blamed_fields(message: str, param: str) -> Iterator[Capability]:
    if "--tool-call-parser" in message or "--enable-auto-tool-choice" in message:
        yield Capability.TOOL_PARSER
    elif any(word in message for word in _UNKNOWN):
        text = f"{param} {message}"
        yield from (
            capability
            for capability, words in _BLAMED.items()
            if all(word in text for word in words)
        )


def without_missing_features(upstream_request: UpstreamRequest, lacks: Lacks) -> UpstreamRequest:
    """Return the request without the features that an engine lacks."""
    if not lacks:
        return upstream_request
    omits = upstream_request.omits | {
        _OMITTED[missing][0] for missing in _OMITTED if missing in lacks
    }
    upstream_request = replace(
        upstream_request, omits=omits, messages=_rewrite_messages(upstream_request.messages, lacks)
    )
    for capability, change in _CHANGES.items():
        if capability in lacks:
            upstream_request = change(upstream_request, lacks)
    return upstream_request


def _template(lacks: Lacks) -> Template:
    system: SystemRole = "anywhere"
    if Capability.SYSTEM_ROLE in lacks:
        system = "nowhere"
    # a template that rejects repeated roles also rejects a later system message, because it expects
    # that user and assistant messages alternate
    elif Capability.LATE_SYSTEM in lacks or Capability.REPEATED_ROLES in lacks:
        system = "first"
    return Template(
        has_developer=system == "anywhere" and Capability.DEVELOPER_ROLE not in lacks,
        system=system,
        alternates=Capability.REPEATED_ROLES in lacks,
        prefill=Capability.PREFILL not in lacks,
    )


def _rewrite_messages(messages: tuple[Message, ...], lacks: Lacks) -> tuple[Message, ...]:
    """Rewrite the messages and their roles; add a user message if the model requires it."""
    for capability, rewrite in _BEFORE_ROLES.items():
        if capability in lacks:
            messages = rewrite(messages)
    fitted = fit_roles(messages, _template(lacks), [])
    if Capability.USER_AFTER_TOOL in lacks:  # a later system message may have become a user message
        fitted = refused_forms.acknowledge_results(fitted)
    lacks_user = Capability.USERLESS in lacks and all(message.role != "user" for message in fitted)
    return (*fitted, CONTINUE) if lacks_user else fitted


# The rewrites of messages before their roles are changed, in this order.
_BEFORE_ROLES: Mapping[Capability, Callable[[Messages], Messages]] = {
    Capability.PICTURES: refused_forms.hide_pictures,
    Capability.RESULT_PICTURES: refused_forms.move_pictures,
    Capability.LONG_CALL_IDS: refused_forms.shorten_ids,
    Capability.TEXT_BESIDE_THINKING: refused_forms.think_instead,
    Capability.CALLS_WITHOUT_THINKING: refused_forms.add_thoughts,
    Capability.EMPTY_ANSWERS: refused_forms.fill_empty_answers,
}


def _without_thoughts(upstream_request: UpstreamRequest, lacks: Lacks) -> UpstreamRequest:
    if not upstream_request.messages or upstream_request.messages[-1].role != "assistant":
        return upstream_request
    request = upstream_request.request
    fields = dict(request.fields)
    # a variable in the client's chat_template_kwargs would override `request.thinking`
    if VARIABLES in fields:
        variables = json.split_object(fields[VARIABLES])
        fields[VARIABLES] = json.join_object({**variables, "enable_thinking": b"false"})
    thinking = replace(request.thinking, is_on=False)
    return replace(upstream_request, request=replace(request, fields=fields, thinking=thinking))


def _with_simple_schemas(upstream_request: UpstreamRequest, lacks: Lacks) -> UpstreamRequest:
    schema = upstream_request.schema
    return replace(
        upstream_request,
        request=_with_simple_response_format(upstream_request.request)
        if upstream_request.checks_answer
        else upstream_request.request,
        tools=tuple(simplify(tool, is_strict=True) for tool in upstream_request.tools),
        schema=None if schema is None else simplify_for_grammar(schema),
    )


def _with_simple_response_format(request: Request) -> Request:
    response_format = as_object(json.parse(request.fields.get(RESPONSE_FORMAT, b"{}")))
    described = as_object(response_format.get("json_schema"))
    if not (schema := as_object(described.get("schema"))):
        return request
    simple: JsonObject = {**described, "schema": simplify_for_grammar(schema)}
    changed_format = json.dump({**response_format, "json_schema": simple})
    return replace(request, fields={**request.fields, RESPONSE_FORMAT: changed_format})


def describe_tools(upstream_request: UpstreamRequest, lacks: Lacks) -> UpstreamRequest:
    """Move the tools of a request into its prompt, in the most common syntax (Hermes)."""
    has_tools = bool(upstream_request.tools) and upstream_request.tool_choice is not ToolUse.NONE
    if not (
        has_tools
        or (
            not upstream_request.tools
            and any(message.calls for message in upstream_request.messages)
        )
    ):
        return upstream_request
    prompt_format = PromptFormat(
        upstream_request.tools, None, find_convention("hermes"), _template(lacks)
    )
    described = prompt_format.upstream_request(
        upstream_request.request, upstream_request.messages, omits=upstream_request.omits
    )
    return replace(upstream_request, messages=described.messages, tools=(), omits=described.omits)


_EFFORT_WORD = re.compile(rf"\b(?:{'|'.join(RANKS)})\b")


def _efforts_offered(message: str, request: Request) -> str:
    """Return the efforts that a refusal recommends, separated by spaces.

    Example: "Input should be 'low', 'medium' or 'high'" (sent: "max") -> "low medium high"
    """
    sent = thinking_fields(request).get(EFFORT) or effort_in(request)
    named = dict.fromkeys(_EFFORT_WORD.findall(message.lower()))
    return " ".join(word for word in named if word != sent)


def _with_offered_effort(upstream_request: UpstreamRequest, lacks: Lacks) -> UpstreamRequest:
    request = fit_effort(upstream_request.request, lacks[Capability.EFFORT_WORDS].split())
    return replace(upstream_request, request=request)


def _with_functions(
    upstream_request: UpstreamRequest, change: Callable[[JsonObject], JsonObject]
) -> UpstreamRequest:
    """Apply `change` to each tool's `function`; the JSON of an unchanged tool keeps its bytes."""
    tools: list[Tool] = []
    for tool in upstream_request.tools:
        document = as_object(json.parse(tool.source))
        function = as_object(document.get("function"))
        changed = change(function)
        source = (
            tool.source if changed == function else json.dump({**document, "function": changed})
        )
        tools.append(replace(tool, source=source))
    return replace(upstream_request, tools=tuple(tools))


def _with_properties(function: JsonObject) -> JsonObject:
    empty: JsonObject = {"type": "object", "properties": {}}
    return {**function, "parameters": empty | as_object(function.get("parameters"))}


def _without_strict(function: JsonObject) -> JsonObject:
    return {name: value for name, value in function.items() if name != "strict"}


# missing feature -> the change of the request; the changes are applied in this order
_CHANGES: Mapping[Capability, Callable[[UpstreamRequest, Lacks], UpstreamRequest]] = {
    Capability.EFFORT_WORDS: _with_offered_effort,
    Capability.THOUGHTFUL_PREFILL: _without_thoughts,
    Capability.REPLY_PARSER: lambda upstream_request, _: replace(
        upstream_request, parsing=Parsing.OURS
    ),
    Capability.RICH_SCHEMAS: _with_simple_schemas,
    Capability.BARE_SCHEMAS: lambda upstream_request, _: _with_functions(
        upstream_request, _with_properties
    ),
    Capability.STRICT_FIELD: lambda upstream_request, _: _with_functions(
        upstream_request, _without_strict
    ),
    Capability.TOOLS: describe_tools,
}


def directives_without(upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
    """Return the fields that constrain the output of an engine, without the features in `lacks`.

    For an engine without a tool-call parser, `tool_choice` is "none", and a schema for the text
    replaces "required". With "none", vLLM still renders the tools into the prompt (unless it runs
    with --exclude-tools-when-tool-choice-none) and returns the raw text.
    """
    fields = directives(upstream_request)
    fields |= _limit_fields(upstream_request, lacks) | _thinking_fields(upstream_request, lacks)
    if Capability.PARALLEL_CHOICE in lacks:
        fields.pop("parallel_tool_calls", None)
    if not upstream_request.tools:
        return fields
    if Capability.TOOL_PARSER in lacks:
        return {**fields, "tool_choice": "none", **response_format_of(upstream_request)}
    if upstream_request.schema is not None and Capability.BOUND_ARGUMENTS in lacks:
        fields |= _binding_fields(upstream_request, upstream_request.schema, lacks)
    choice = fields.get("tool_choice")
    is_named = isinstance(upstream_request.tool_choice, NamedTool)
    if is_named and choice is None and Capability.NAMED_CHOICE in lacks:
        choice = fields["tool_choice"] = "required"
    sends_required = choice == "required" or upstream_request.tool_choice is ToolUse.REQUIRED
    if sends_required and choice != "none" and Capability.REQUIRED_CHOICE in lacks:
        fields["tool_choice"] = "auto"
    return fields


def _binding_fields(
    upstream_request: UpstreamRequest, schema: JsonObject, lacks: Lacks
) -> JsonObject:
    """Return the fields that constrain a call if `required` does not constrain its arguments.

    With strict tools, each call follows the schema of its tool. Strict tools cannot express that
    only some of the tools are allowed, or that a retry continues a streamed call. In these two
    cases, a schema constrains the text instead.
    """
    if Capability.BOUND_TEXT in lacks:
        return {}
    # the allowed tools are read from the schema: it contains {"const": NAME} for each of them
    written_schema = json.dump(schema)
    allowed_tools = [
        tool for tool in upstream_request.tools if json.dump({"const": tool.name}) in written_schema
    ]
    # `tool_choice` can only allow one tool or all tools, not some of them
    is_complete = schema == call_schema(allowed_tools) and len(allowed_tools) in (
        1,
        len(upstream_request.tools),
    )
    has_strict = Capability.STRICT_TOOLS not in lacks and Capability.STRICT_FIELD not in lacks
    if not (has_strict and is_complete):
        return {"tool_choice": "none", **response_format_of(upstream_request)}
    tools: JsonValue = [_as_strict(tool) for tool in upstream_request.tools]
    if len(allowed_tools) == len(upstream_request.tools) or Capability.NAMED_CHOICE in lacks:
        return {"tools": tools}
    named: JsonObject = {"type": "function", "function": {"name": allowed_tools[0].name}}
    return {"tools": tools, "tool_choice": named}


def _as_strict(tool: Tool) -> JsonObject:
    document = as_object(json.parse(tool.source))
    return {**document, "function": {**as_object(document.get("function")), "strict": True}}


def _limit_fields(upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
    """Return the client's token limit under the field name that the engine knows.

    Example: max_completion_tokens: 100 -> {"max_tokens": 100} (COMPLETION_LIMIT is missing)
    """
    return {
        known: upstream_request.request.max_tokens
        for limit, (sent, known) in _OMITTED.items()
        if known and limit in lacks and sent in upstream_request.request.fields
    }


def _thinking_fields(upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
    """Return the reasoning fields of a request, without the fields that the engine refuses."""
    unknown = {name for capability, name in _THOUGHTS.items() if capability in lacks}
    fields = thinking_fields(upstream_request.request)
    return {name: value for name, value in fields.items() if name not in unknown}


# A refusal is forgotten after this time, because the engine may have been restarted with the
# feature. If the engine still lacks the feature, the next use of the feature costs one refused
# request.
_VALID_SECONDS = 600.0
_MOST_MODELS = 256  # models whose refusals are stored; clients choose the names
_MOST_CONVERSATIONS = 4096  # conversations whose prompts describe the tools


class LearnedRefusals:
    """The features that an engine refused, by model.

    A refusal expires after `_VALID_SECONDS`, and when the engine reports another build. The results
    of probes (`honours`, by the name of the probe) are valid until the build changes.
    """

    def __init__(self, engine: str, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self.build = ""
        # model -> missing feature -> the time until which it counts as missing, and its detail
        self._models: dict[str, dict[Capability, tuple[float, str]]] = {}
        self._honours: dict[str, dict[str, bool]] = {}
        # the keys of the conversations whose prompts describe the tools, the oldest first
        self._described_conversations: dict[str, None] = {}

    def for_conversation(self, lacks: Lacks, request: Request, headers: Mapping[str, str]) -> Lacks:
        """Return the missing features for a conversation, without moving its tools.

        Moving the tools from the API's `tools` field into the prompt, or back, invalidates the
        prompt cache of the whole conversation. So a learned refusal of TOOLS applies only to new
        conversations.
        """
        # almost every engine accepts tools, and computing the key below takes time
        if not self._described_conversations and (not lacks or Capability.TOOLS not in lacks):
            return lacks
        conversation = conversation_key(request, headers)
        if conversation in self._described_conversations:
            return {**lacks, Capability.TOOLS: ""}
        if any(message.role == "assistant" for message in request.messages):
            return {
                capability: known
                for capability, known in lacks.items()
                if capability is not Capability.TOOLS
            }
        self.note_described_tools(request, headers)
        return lacks

    def note_described_tools(self, request: Request, headers: Mapping[str, str]) -> None:
        """Remember that a conversation's prompt describes the tools."""
        conversation = conversation_key(request, headers)
        self._described_conversations.pop(conversation, None)
        self._described_conversations[conversation] = None
        if len(self._described_conversations) > _MOST_CONVERSATIONS:
            del self._described_conversations[next(iter(self._described_conversations))]

    def honours(self, model: str) -> Mapping[str, bool]:
        return self._honours.get(model, {})

    def note(self, model: str, probe: str, *, is_honoured: bool) -> None:
        """Store the result of a probe."""
        if len(self._honours) >= _MOST_MODELS:
            self._honours.clear()
        self._honours.setdefault(model, {})[probe] = is_honoured

    def of(self, model: str) -> Lacks:
        if model not in self._models:  # saves reading the clock for most requests
            return {}
        now, refusals = self._clock(), self._models[model]
        return {capability: known for capability, (until, known) in refusals.items() if now < until}

    def models(self) -> tuple[str, ...]:
        return tuple(self._models)

    def add(
        self, model: str, missing: Capability, known: str = "", lasting: float = _VALID_SECONDS
    ) -> None:
        """Store a missing feature for `lasting` seconds; log it the first time."""
        if missing not in self._models.get(model, {}):
            feature = missing.name.lower()
            logger.warning(
                "%s does not support %s for model %r: %s",
                self._engine,
                feature,
                model,
                missing.value,
            )
        # clients choose the model names, so the number of stored names has to be bounded
        if len(self._models) >= _MOST_MODELS and model not in self._models:
            self._models.clear()
        self._models.setdefault(model, {})[missing] = (self._clock() + lasting, known)

    def note_build(self, build: str) -> None:
        """Forget the refusals of another build; do nothing if `build` is "" (unknown)."""
        if build and self.build and build != self.build:
            self._models.clear()
            self._honours.clear()
            self._described_conversations.clear()
        self.build = build or self.build
