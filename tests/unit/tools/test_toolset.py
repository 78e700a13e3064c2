import asyncio
import os
import subprocess
import sys

import pytest

from proxy.conversation import json
from proxy.conversation.tools import ToolCall
from proxy.tools.execution import Limits
from proxy.tools.executor import Executor, RoundContext, Status
from proxy.tools.function import ToolContext, tool
from proxy.tools.toolset import PromptForm, Toolset


def get_weather(city: str) -> str:
    """Report the weather."""
    return f"sunny in {city}"


@tool(aliases=("clock", "time"))
def now(context: ToolContext[str]) -> str:
    """Return the time."""
    return f"{context.deps}, round {context.round}"


def test_functions_and_tools_are_found_by_name_and_by_alias() -> None:
    tools = Toolset([get_weather, now])

    assert len(tools) == 2
    assert [tool.name for tool in tools] == ["get_weather", "now"]
    assert tools.get("clock") is now
    assert tools.get("date") is None
    assert "time" in tools
    assert "date" not in tools
    assert tools.aliases == {"clock": "now", "time": "now"}


def test_the_decorator_registers_a_function_with_or_without_options() -> None:
    tools = Toolset()

    @tools.tool
    def first() -> None: ...

    @tools.tool(name="second", aliases=("two",), description="Do it.")
    def another() -> None: ...

    assert [*tools] == [first, another]
    assert tools.get("two") is another


@pytest.mark.parametrize(
    "clashing",
    [
        tool(name="get_weather")(lambda: None),
        tool(name="clock")(lambda: None),
        tool(name="other", aliases=("now",))(lambda: None),
        tool(name="other", aliases=("time",))(lambda: None),
        tool(name="other", aliases=("other",))(lambda: None),
    ],
)
def test_duplicate_names_or_aliases_are_refused(clashing: object) -> None:
    assert callable(clashing)
    with pytest.raises(ValueError, match=r"two tools have the name '\w+'"):
        Toolset([get_weather, now, clashing])


def test_tools_are_listed_in_chat_format_and_in_order() -> None:
    tools = Toolset([get_weather, now])

    assert tools.openai() == [json.parse(spec.source) for spec in tools.specs()]
    assert tools.openai()[0] == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Report the weather.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }


def test_execute_passes_the_deps_to_tools_with_a_context() -> None:
    tools = Toolset([get_weather, now])
    calls = [ToolCall("a", "get_weather", '{"city":"Oslo"}'), ToolCall("b", "clock", "{}")]

    weather, time = asyncio.run(tools.execute(calls, deps="noon"))

    assert weather.text == "sunny in Oslo"
    assert time.text == "noon, round 1"
    assert time.status is Status.DONE


def test_result_chars_of_the_round_context_overrides_the_limits() -> None:
    @tool
    def long() -> str:
        return "a" * 1000

    tools, calls, limits = Toolset([long]), [ToolCall("a", "long", "{}")], Limits(result_chars=90)

    (alone,) = asyncio.run(tools.execute(calls, limits=limits))
    (within,) = asyncio.run(tools.execute(calls, RoundContext(result_chars=70), limits=limits))

    assert len(alone.text) == 90
    assert len(within.text) == 70


def test_bound_tools_execute_calls_with_their_deps_and_approval() -> None:
    async def never(_: ToolCall) -> bool:
        return False

    @tool(needs_approval=True)
    def delete() -> None: ...

    tools = Toolset([now, delete])
    executor: Executor = tools.bound("deps", Limits(parallel=1), never)
    calls = [ToolCall("a", "now", "{}"), ToolCall("b", "delete", "{}")]

    done, refused = asyncio.run(executor.execute(calls, RoundContext(round=2)))

    assert executor.specs() == tools.specs()
    assert done.text == "deps, round 2"
    assert refused.status is Status.REFUSED


@pytest.mark.deep
def test_the_cli_and_the_api_do_not_import_proxy_tools() -> None:
    script = "import sys, proxy.cli.app, proxy.api.app; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, check=True, env=environment, text=True
    ).stdout.split()

    assert "proxy.api.app" in loaded
    assert not {"proxy.tools", "docstring_parser"} & {*loaded}


@pytest.mark.parametrize("form", ["hermes", "mistral", "gemma", "llama3", "react", "json"])
def test_tools_are_described_for_a_system_prompt(form: PromptForm) -> None:
    def get_weather(city: str) -> str:
        """Tell the weather in a city."""
        return city

    described = Toolset([get_weather]).prompt(form)
    assert "get_weather" in described
    assert "Tell the weather in a city." in described
