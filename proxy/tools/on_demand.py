"""Tools on demand: the prompt has only summaries of many tools; a call returns the definitions.

    sent     {"name": "get_weather", "description": "Current weather.", "parameters": {"type": ...}}
    call     find_tools({"query": "weather forecast"})
    result   get_weather: Current weather of a city. ...
             arguments: {"type": "object", "properties": {"city": {"type": "string"}}}

The definitions are appended as the result of a call, so the prompt only grows. The request still
lists all tools, because an engine's grammar allows only calls of listed tools. Temper checks each
call against the complete schema. So if a model knows only the summary and passes wrong arguments,
Temper retries.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import structs

from proxy.context.lexical_search import rank
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from proxy.inference.plan import RequestPlan

# The definitions of 60 tools can take more than half of a small window (decision 0036).
_SUMMARY_CHARACTERS = 60
# For 96.5 % of 1,053 questions of BFCL with 50 other tools, the right definition was among the
# first five results (decision 0036).
_MOST_RESULTS = 5
_RESULT_CHARACTERS = 6_000
_SOURCES = 4_096  # tools in the caches; clients send the same tools with every request


def summarize(plan: RequestPlan, tools: Sequence[Tool]) -> RequestPlan:
    """Return the plan with summaries of `tools` in the prompt; calls are checked as before."""
    names = {tool.name for tool in tools}
    form = plan.prompt_format
    tools = tuple(summary(tool) if tool.name in names else tool for tool in form.tools)
    return structs.replace(plan, prompt_format=structs.replace(form, tools=tools))


def find_definitions(query: str, tools: Sequence[Tool]) -> str:
    """Return the definitions that match a query best, or a note if none matches."""
    texts = [(tool.name, _searchable(tool)) for tool in tools]
    # the description of `find_tools` suggests the name of a tool as a query
    exact = [index for index, tool in enumerate(tools) if tool.name in query.split()]
    best = list(dict.fromkeys((*exact, *rank(query, texts))))[:_MOST_RESULTS]
    if not best:
        return (
            "No tool matches this query. Use words of the names and summaries of the tools, "
            "or the exact name of a tool."
        )
    return _join([_definition(tools[index]) for index in best])


def summary(tool: Tool) -> Tool:
    """Return a tool with the first sentence of its description, and a schema for any object.

    A definition that is already shorter stays unchanged.
    """
    source = _summary_source(tool.source, tool.name)
    if len(source) >= len(tool.source):
        return tool
    return Tool(tool.name, {"type": "object"}, source)


@lru_cache(_SOURCES)
def _summary_source(source: bytes, name: str) -> bytes:
    function: JsonObject = {"name": name}
    if words := _first_sentence(_description(source)):
        function["description"] = words
    function["parameters"] = {"type": "object"}
    return json.dump({"type": "function", "function": function})


def _first_sentence(text: str) -> str:
    words = " ".join(text.split())
    sentence = words.partition(". ")[0].removesuffix(".")
    if len(sentence) <= _SUMMARY_CHARACTERS:
        return sentence
    return sentence[:_SUMMARY_CHARACTERS].rpartition(" ")[0] + "…"


@lru_cache(_SOURCES)
def _description(source: bytes) -> str:
    document = json.parse(source)
    function = document.get("function") if isinstance(document, dict) else None
    text = function.get("description") if isinstance(function, dict) else None
    return text if isinstance(text, str) else ""


def _searchable(tool: Tool) -> str:
    return f"{_description(tool.source)} {json.dump_text(tool.parameters)}"


def _definition(tool: Tool) -> str:
    """Describe a tool in lines that no parser recognizes as a call."""
    return f"{tool.name}: {_description(tool.source)}\narguments: {json.dump_text(tool.parameters)}"


def _join(definitions: Sequence[str]) -> str:
    """Join as many definitions as `_RESULT_CHARACTERS` allows, but at least one."""
    texts, size = [definitions[0]], len(definitions[0])
    for text in definitions[1:]:
        size += len(text)
        if size > _RESULT_CHARACTERS:
            break
        texts.append(text)
    return "\n\n".join(texts)
