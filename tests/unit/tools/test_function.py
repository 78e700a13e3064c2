import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.tools.function import TIMEOUT, FunctionTool, ToolContext, ToolOptions, tool


@tool
def get_weather(city: str) -> str:
    """Report the weather."""
    return f"sunny in {city}"


@tool(
    name="grüße now!",
    description="Greet somebody.",
    aliases=("hello", "hi", "hello"),
    timeout=None,
    parallel=False,
    needs_approval=True,
    llm_format="{value}",
    display_format=str,
)
def greet(context: ToolContext[str], name: str) -> str:
    """Return a greeting."""
    return f"{context.deps} {name}"


def test_a_tool_has_the_name_and_the_docstring_of_its_function() -> None:
    assert get_weather.name == "get_weather"
    assert get_weather.options == ToolOptions()
    assert get_weather.options.timeout == TIMEOUT
    assert json.parse(get_weather.spec.source) == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Report the weather.",
            "parameters": get_weather.spec.parameters,
        },
    }


def test_a_tool_can_still_be_called_as_a_function() -> None:
    assert get_weather("Oslo") == "sunny in Oslo"
    assert get_weather(city="Oslo") == "sunny in Oslo"


def test_options_of_the_decorator_take_precedence_over_the_signature() -> None:
    assert greet.name == "gr__e_now_"
    assert greet.aliases == ("hello", "hi")
    assert greet.context == "context"
    assert greet.options.timeout is None
    assert not greet.options.parallel
    assert greet.options.needs_approval
    assert b"Greet somebody." in greet.spec.source


def test_the_name_of_a_tool_is_shortened_to_64_characters() -> None:
    assert len(tool(name="x" * 80)(get_weather.function).name) == 64


def test_a_custom_schema_replaces_the_signature() -> None:
    parameters: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}

    @tool(parameters=parameters)
    def f(it: ToolContext[None], **given: object) -> str:
        """Take anything."""
        return str(given)

    assert isinstance(f, FunctionTool)
    assert f.spec.parameters == parameters
    assert f.context == "it"
    assert f.read('{"n":1}') == {"n": 1}
    assert b"Take anything." in f.spec.source


def test_an_unknown_option_of_the_decorator_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        tool(colour="red")  # type: ignore[call-overload]
