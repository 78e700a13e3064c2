"""Offered tools that a backend would refuse for a trifle."""

from proxy.conversation import json
from proxy.conversation.tools import Tool
from proxy.facts import Fact, Healed


def heal_tools(tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], tuple[Fact, ...]]:
    """Drop `description: null`, which OpenAI allows and llama-server answers with a 500."""
    facts: list[Fact] = []
    return tuple(_heal_tool(tool, facts) for tool in tools), tuple(facts)


def _heal_tool(tool: Tool, facts: list[Fact]) -> Tool:
    if b"null" not in tool.source:
        return tool
    source = json.parse(tool.source)
    assert isinstance(source, dict)  # noqa: S101 - the dialect made the tool from an object
    function = source.get("function")
    if not isinstance(function, dict) or function.get("description", "") is not None:
        return tool
    source["function"] = {key: value for key, value in function.items() if key != "description"}
    facts.append(Healed("description"))
    return Tool(tool.name, tool.parameters, json.dump(source))
