"""The spellings of tool calls: at least one for every syntax of the registry.

Written by hand from the documentation and templates of model families. A spelling does not
determine whether a call is meant; the situations in `genuine` and `quoted` do.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

Call: TypeAlias = tuple[str, JsonObject]
Writer: TypeAlias = Callable[[str, JsonObject], str]
ListWriter: TypeAlias = Callable[[Sequence[Call]], str]

_TOKENS = (
    *("<|", "<｜", "[TOOL_CALLS]", "to=", "functions."),
    *("<minimax:tool_call>", "<longcat_tool_call>"),
)


@dataclass(frozen=True)
class Spelling:
    """One way to write calls in a syntax.

    `several` writes all calls of a reply. `closer` is the closing mark that a model may omit at the
    end of the reply. `follows_prose` is true if the calls may follow other text, and `begins_reply`
    if they may begin the reply.
    """

    syntax: str
    several: ListWriter
    closer: str = ""
    is_marked: bool = True
    follows_prose: bool = True
    begins_reply: bool = True

    def one(self, call: Call) -> str:
        """Write one call."""
        return self.several([call])

    @property
    def has_tokens(self) -> bool:
        """Return whether the spelling begins with a control token, which prose does not contain."""
        return self.one(("x", {})).lstrip().startswith(_TOKENS)


def lines(write: Writer, between: str = "\n") -> ListWriter:
    """Return a writer of several calls, from a writer of one call."""

    def several(calls: Sequence[Call]) -> str:
        return between.join(write(name, arguments) for name, arguments in calls)

    return several


def enclose(before: str, calls: ListWriter, after: str) -> ListWriter:
    """Put marks before and after the calls."""
    return lambda calls_markup: before + calls(calls_markup) + after


def wrapped(tag: str, write: Writer) -> ListWriter:
    """Put a tag around calls, on separate lines."""
    return enclose(f"<{tag}>\n", lines(write), f"\n</{tag}>")


def within(before: str, write: Writer, after: str) -> Writer:
    """Put marks around one call."""
    return lambda name, arguments: before + write(name, arguments) + after


def wordy(value: JsonValue) -> str:
    """Return JSON with a space after commas and colons, as many models write it."""
    match value:
        case dict():
            members = (f"{json.dump_text(key)}: {wordy(item)}" for key, item in value.items())
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(map(wordy, value)) + "]"
        case _:
            return json.dump_text(value)


def plain(value: JsonValue) -> str:
    """Write a value as text: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else wordy(value)


def envelope(name_key: str = "name", arguments_key: str = "arguments") -> Writer:
    """Make a writer of a JSON object with a name and arguments."""

    def write(name: str, arguments: JsonObject) -> str:
        return wordy({name_key: name, arguments_key: arguments})

    return write


def listed(write: Writer) -> ListWriter:
    """Make a writer of a JSON list."""
    return enclose("[", lines(write, ", "), "]")


def python(name: str, arguments: JsonObject) -> str:
    """Write a call in Python."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def coder(name: str, arguments: JsonObject) -> str:
    """Write a call as Qwen3-Coder does, without the wrapper."""
    pairs = (
        f"<parameter={key}>\n{plain(value)}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<function={name}>\n{''.join(pairs)}</function>"


def invocation(namespace: str = "") -> Writer:
    """Make a writer of an invocation in some namespace."""

    def write(name: str, arguments: JsonObject) -> str:
        pairs = (
            f'<{namespace}parameter name="{key}">{plain(value)}</{namespace}parameter>\n'
            for key, value in arguments.items()
        )
        return f'<{namespace}invoke name="{name}">\n{"".join(pairs)}</{namespace}invoke>'

    return write


def function_tags(name: str, arguments: JsonObject) -> str:
    """Write a call as MiniCPM does, values with markup or line ends as character data."""
    pairs = (
        f'<param name="{key}">{_characters(plain(value))}</param>'
        for key, value in arguments.items()
    )
    return f'<function name="{name}">{"".join(pairs)}</function>'


def _characters(text: str) -> str:
    return f"<![CDATA[{text}]]>" if set(text) & set("<>&\n") else text


def argument_pairs(prefix: str = "") -> Writer:
    """Return a writer of alternating keys and values, as GLM writes them."""

    def write(name: str, arguments: JsonObject) -> str:
        pairs = (
            f"<{prefix}arg_key>{key}</{prefix}arg_key>\n"
            f"<{prefix}arg_value>{plain(value)}</{prefix}arg_value>\n"
            for key, value in arguments.items()
        )
        return f"<{prefix}tool_call>{name}\n{''.join(pairs)}</{prefix}tool_call>"

    return write


def suffixed(suffix: str) -> ListWriter:
    """Return a writer of GLM's syntax with a suffix in every tag."""

    def several(calls: Sequence[Call]) -> str:
        text = lines(argument_pairs())(calls)
        for tag in ("tool_call", "arg_key", "arg_value"):
            text = text.replace(f"{tag}>", f"{tag}:{suffix}>")
        return text

    return several


def gemma(name: str, arguments: JsonObject) -> str:
    """Write a call as Gemma 4 does, without its marks."""
    return f"call:{name}{_gemma_value(arguments)}"


def _gemma_value(value: JsonValue) -> str:
    match value:
        case dict():
            return (
                "{" + ",".join(f"{key}:{_gemma_value(item)}" for key, item in value.items()) + "}"
            )
        case list():
            return "[" + ",".join(map(_gemma_value, value)) + "]"
        case str():
            return f'<|"|>{value}<|"|>'
        case _:
            return json.dump_text(value)


def kimi_k3_words(name: str, arguments: JsonObject) -> str:
    """Write a call as Kimi K3 does, without its control tokens."""
    words = kimi_k3(name, arguments)
    for token in ("<|open|>", "<|close|>", "<|sep|>"):
        words = words.replace(token, "")
    return words


def kimi_k3(name: str, arguments: JsonObject) -> str:
    """Write a call as Kimi K3 does."""
    kinds = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}
    pairs = (
        f'<|open|>argument key="{key}" type="{kinds[type(value)]}"<|sep|>'
        f"{plain(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="{name}"<|sep|>{"".join(pairs)}<|close|>call<|sep|>'


def solar_arguments(name: str, arguments: JsonObject) -> str:
    """Write a call as Solar Open 2 does."""
    pairs = (
        f"<|tool_arg:start|>{key}<|tool_arg:value|>{plain(value)}<|tool_arg:end|>\n"
        for key, value in arguments.items()
    )
    return f"<|tool_call:start|>{name}\n{''.join(pairs)}<|tool_call:end|>"


def named(before: str, between: str, after: str) -> Writer:
    """Make a writer of a name and a JSON object, with marks around them."""
    return lambda name, arguments: f"{before}{name}{between}{wordy(arguments)}{after}"


def cohere(name: str, arguments: JsonObject) -> str:
    """Write one item of the list of actions that Command models write."""
    return wordy({"tool_call_id": "0", "tool_name": name, "parameters": arguments})


def single(name: str, arguments: JsonObject) -> str:
    """Write an object with the name as its only key."""
    return wordy({name: arguments})


def openai(name: str, arguments: JsonObject) -> str:
    """Write a call in the format of the OpenAI API, with arguments in a string."""
    function: JsonObject = {"name": name, "arguments": json.dump_text(arguments)}
    return wordy({"id": "call_1", "type": "function", "function": function})


def fence(language: str, calls: ListWriter) -> ListWriter:
    """Put a code fence around calls."""
    return enclose(f"```{language}\n", calls, "\n```")


def named_tags(name: str, arguments: JsonObject) -> str:
    """Write the envelope as tags."""
    inside = f"<name>{name}</name>\n<arguments>{wordy(arguments)}</arguments>"
    return f"<tool_call>\n{inside}\n</tool_call>"


def attributed_tags(name: str, arguments: JsonObject) -> str:
    """Write the name into the tag of the call, and the arguments as elements."""
    pairs = (
        f'<parameter name="{key}">{plain(value)}</parameter>\n' for key, value in arguments.items()
    )
    return f'<tool_call name="{name}">\n{"".join(pairs)}</tool_call>'


def line_blocks(name: str, arguments: JsonObject) -> str:
    """Write a block of lines for every argument, as Continue prompts models to do."""
    pairs = (f"BEGIN_ARG: {key}\n{plain(value)}\nEND_ARG\n" for key, value in arguments.items())
    return f"```tool\nTOOL_NAME: {name}\n{''.join(pairs)}```"


JSON = envelope()
PARAMETERS = envelope("name", "parameters")
_K2 = named("<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>")
_V3 = named(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"
)
_V31 = named("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
_PLAIN_BAR = named("<|tool▁call▁begin|>", "<|tool▁sep|>", "<|tool▁call▁end|>")
_K2_START = named("functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>")
_SOLAR = named("<|tool_call:begin|>1<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>")
_PLAMO = named(
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>",
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
)
_TO = " to=functions."
_HARMONY = named(f"<|channel|>commentary{_TO}", " <|constrain|>json<|message|>", "<|call|>")
_HARMONY_START = named("to=functions.", "<|channel|>commentary json<|message|>", "<|call|>")
_HARMONY_WORDS = named("to=functions.", " json", "")


def spell(syntax: str, several: ListWriter, closer: str = "") -> Spelling:
    """Make a spelling with an unmistakable mark."""
    return Spelling(syntax, several, closer)


_TAG, _TAG_END = "<tool_call>\n", "\n</tool_call>"
_DSML = "｜DSML｜"

# Such a call begins with two marks, each of which can also begin a call.
WRAPPED: tuple[Spelling, ...] = (
    spell("qwen_coder", lines(within(_TAG, coder, _TAG_END)), "</tool_call>"),
    spell("invoke", wrapped("function_calls", invocation()), "</function_calls>"),
    spell("invoke", wrapped("minimax:tool_call", invocation()), "</minimax:tool_call>"),
    spell(
        "invoke", wrapped(f"{_DSML}function_calls", invocation(_DSML)), f"</{_DSML}function_calls>"
    ),
)
SINGLE: tuple[Spelling, ...] = (
    spell("hermes", lines(within(_TAG, JSON, _TAG_END)), "</tool_call>"),
    spell("hermes", enclose(_TAG, lines(JSON), _TAG_END), "</tool_call>"),
    spell("tools_tag", enclose("<tools>\n", lines(JSON), "\n</tools>"), "</tools>"),
    spell("qwen_coder", lines(coder), "</function>"),
    spell("argument_pairs", lines(argument_pairs()), "</tool_call>"),
    spell("argument_pairs", lines(argument_pairs("longcat_")), "</longcat_tool_call>"),
    spell("invoke", lines(invocation()), "</invoke>"),
    spell("function_tags", lines(function_tags), "</function>"),
    spell("gemma", lines(within("<|tool_call>", gemma, "<tool_call|>")), "<tool_call|>"),
    spell("mistral", enclose("[TOOL_CALLS]", listed(JSON), "")),
    spell("mistral", lines(named("[TOOL_CALLS]", "[ARGS]", ""), "")),
    spell(
        "kimi",
        enclose("<|tool_calls_section_begin|>", lines(_K2, ""), "<|tool_calls_section_end|>"),
        "<|tool_calls_section_end|>",
    ),
    spell("kimi_k3", lines(kimi_k3, ""), "<|close|>call<|sep|>"),
    spell("solar_arguments", lines(solar_arguments), "<|tool_call:end|>"),
    spell(
        "deepseek",
        enclose("<｜tool▁calls▁begin｜>", lines(_V3), "<｜tool▁calls▁end｜>"),
        "<｜tool▁calls▁end｜>",
    ),
    spell(
        "deepseek",
        enclose("<｜tool▁calls▁begin｜>", lines(_V31, ""), "<｜tool▁calls▁end｜>"),
        "<｜tool▁calls▁end｜>",
    ),
    spell("harmony", lines(_HARMONY, "<|start|>assistant"), "<|call|>"),
    Spelling(
        "harmony_start",
        lines(_HARMONY_START, "<|start|>assistant "),
        "<|call|>",
        follows_prose=False,
    ),
    Spelling(
        "harmony_words",
        enclose("commentary ", lines(_HARMONY_WORDS, "assistantcommentary "), ""),
        follows_prose=False,
    ),
    Spelling(
        "kimi_k3_words",
        enclose("tools", lines(kimi_k3_words, ""), "tools"),
        "tools",
        follows_prose=False,
    ),
    spell("deepseek_plain", lines(_PLAIN_BAR, ""), "<|tool▁call▁end|>"),
    Spelling(
        "kimi_start",
        lines(_K2_START, "<|tool_call_begin|>"),
        "<|tool_call_end|>",
        follows_prose=False,
    ),
    spell("solar", lines(_SOLAR, ""), "<|tool_call:end|>"),
    spell("nemotron", enclose("<TOOLCALL>", listed(JSON), "</TOOLCALL>"), "</TOOLCALL>"),
    spell(
        "tool_call_brackets", lines(within("[TOOL_CALL]\n", JSON, "\n[/TOOL_CALL]")), "[/TOOL_CALL]"
    ),
    spell("tool_use", lines(within("<tool_use>\n", JSON, "\n</tool_use>")), "</tool_use>"),
    spell(
        "command_r",
        enclose(
            "Action: ```json\n",
            enclose("[", lines(envelope("tool_name", "parameters"), ", "), "]"),
            "\n```",
        ),
    ),
    spell("named_tags", lines(named_tags), "</tool_call>"),
    spell("attributed_tags", lines(attributed_tags), "</tool_call>"),
    spell("plamo", lines(_PLAMO, ""), "<|plamo:end_tool_request:plamo|>"),
    spell(
        "suffixed_pairs",
        enclose("<tool_calls:x1>\n", suffixed("x1"), "\n</tool_calls:x1>"),
        "</tool_calls:x1>",
    ),
    Spelling("suffixed_pairs_at_start", suffixed("x1"), "</tool_call:x1>", follows_prose=False),
    spell(
        "dots",
        lines(within("<dots_function_call>", JSON, "</dots_function_call>")),
        "</dots_function_call>",
    ),
    spell(
        "invoke",
        lines(within("<dots_function_call>", invocation(), "</dots_function_call>")),
        "</dots_function_call>",
    ),
    spell(
        "k2_horizon", lines(within("<ifm|tool_call>", JSON, "</ifm|tool_call>")), "</ifm|tool_call>"
    ),
    spell(
        "functionary_header",
        lines(named("<|from|>assistant\n<|recipient|>", "\n<|content|>", ""), ""),
    ),
    spell("granite", enclose("<|tool_call|>", listed(JSON), "")),
    spell("tool_calls", wrapped("tool_calls", JSON), "</tool_calls>"),
    spell(
        "longcat",
        lines(within("<longcat_tool_call>\n", JSON, "\n</longcat_tool_call>")),
        "</longcat_tool_call>",
    ),
    spell(
        "cohere", enclose("<|START_ACTION|>", listed(cohere), "<|END_ACTION|>"), "<|END_ACTION|>"
    ),
    spell(
        "internlm",
        lines(within("<|action_start|><|plugin|>\n", PARAMETERS, "<|action_end|>")),
        "<|action_end|>",
    ),
    Spelling("phi4", enclose("functools", listed(JSON), ""), follows_prose=False),
    Spelling("phi4_in_text", enclose("\nfunctools", listed(JSON), ""), begins_reply=False),
    spell("llama3", enclose("<|python_tag|>", lines(PARAMETERS, "; "), "")),
    spell(
        "llama4",
        enclose("<|python_start|>", lines(PARAMETERS), "<|python_end|>"),
        "<|python_end|>",
    ),
    spell(
        "lfm2",
        enclose("<|tool_call_start|>", listed(JSON), "<|tool_call_end|>"),
        "<|tool_call_end|>",
    ),
    spell("gemma_json", lines(within("<|tool_call>", JSON, "<tool_call|>")), "<tool_call|>"),
    spell("gigachat", lines(within("<|function_call|>", JSON, ""))),
    spell(
        "inkling",
        lines(within("<|content_invoke_tool_json|>", envelope("name", "args"), "<|end_message|>")),
        "<|end_message|>",
    ),
    spell(
        "function_calls",
        enclose("<function_calls>", listed(JSON), "</function_calls>"),
        "</function_calls>",
    ),
    spell(
        "marked_python",
        enclose("<|tool_call_start|>", enclose("[", lines(python, ", "), "]"), "<|tool_call_end|>"),
        "<|tool_call_end|>",
    ),
    spell("marked_python", wrapped("function_calls", python), "</function_calls>"),
    spell(
        "apertus",
        enclose("<|tools_prefix|>", listed(single), "<|tools_suffix|>"),
        "<|tools_suffix|>",
    ),
)
MARKED = (*WRAPPED, *SINGLE)


def spell_plain(syntax: str, several: ListWriter, closer: str = "") -> Spelling:
    """Make a spelling without a mark, which may follow other text."""
    return Spelling(syntax, several, closer, is_marked=False)


def spell_reply(syntax: str, several: ListWriter) -> Spelling:
    """Make a spelling without a mark that has to be the whole reply."""
    return Spelling(syntax, several, is_marked=False, follows_prose=False)


def spell_ending(syntax: str, several: ListWriter, closer: str = "") -> Spelling:
    """Make a spelling without a mark that needs a line before it."""
    return Spelling(syntax, several, closer, is_marked=False, begins_reply=False)


_PYTHON_LIST = enclose("[", lines(python, ", "), "]")

UNMARKED: tuple[Spelling, ...] = (
    spell_plain("fenced_json", fence("json", lines(JSON)), "```"),
    spell_plain("fenced_json", fence("", listed(PARAMETERS)), "```"),
    spell_plain("fenced_json", fence("tool_code", lines(python)), "```"),
    spell_reply("bare_json", lines(JSON)),
    spell_reply("bare_json", listed(PARAMETERS)),
    spell_reply("bare_json", enclose('{"tool_calls": ', listed(openai), "}")),
    spell_ending("unopened_json", lines(within("\n", JSON, "\n</tool_call>"), "")),
    spell_reply("python_reply", _PYTHON_LIST),
    spell_ending("python_list", enclose("\n", _PYTHON_LIST, "")),
    spell_reply("bare_gemma", lines(gemma)),
    spell_ending("bare_gemma_in_text", enclose("\n", lines(gemma), "")),
    spell_reply("functionary", lines(named(">>>", "\n", ""), "")),
    spell_ending("functionary_in_text", enclose("\n", lines(named(">>>", "\n", "")), "")),
    spell_plain("line_blocks", lines(line_blocks)),
    spell_plain("react", lines(named("Action: ", "\nAction Input: ", ""))),
)

SPELLINGS = (*MARKED, *UNMARKED)


def syntaxes_in(spellings: Iterable[Spelling]) -> set[str]:
    """Return the names of the syntaxes of these spellings."""
    return {spelling.syntax for spelling in spellings}
