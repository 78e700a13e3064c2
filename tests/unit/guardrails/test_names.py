import pytest

from proxy.guardrails.names import find_name, find_tool
from tests.fakes.playbook import make_tool

TOOLS = tuple(make_tool(name, {}) for name in ("get_weather", "get-time", "Send", "send"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("get_weather", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("tools/get-weather", "get_weather"),
        ("default_api:get_weather", "get_weather"),
        (" Get_Weather ", "get_weather"),
        ("get_time", "get-time"),
        ("get_weather.get_weather", "get_weather"),
        ("getWeather", "get_weather"),
        ("GetWeather", "get_weather"),
        ("get.weather", "get_weather"),
        ("functions.getTime", "get-time"),
        ("GETTime", "get-time"),
        (r"get\_weather", "get_weather"),
        ("get_weather<|channel|>json", "get_weather"),
        ("google:mcp:get_time", "get-time"),
        ("mcp::get_weather", "get_weather"),
        ("functions_get_weather_0", "get_weather"),
        ("functions.get_weather:0", "get_weather"),
        ("get_weather:12", "get_weather"),
        ('"get_weather"', "get_weather"),
        ("`get_weather`", "get_weather"),
        ("send", "send"),
        ("Send", "Send"),
        ("getweather", "get_weather"),
        ("functions.gettime", "get-time"),
        ("get_weather</arg_value>", "get_weather"),
        ("get_time\n<parameter=zone>", "get-time"),
    ],
)
def test_a_name_resolves_to_the_only_similar_tool(name: str, expected: str) -> None:
    tool = find_tool(name, TOOLS)
    assert tool is not None
    assert tool.name == expected


@pytest.mark.parametrize(
    "name",
    [
        "SEND",
        "launch_rocket",
        "",
        "get_weather_now",
        "x.send",
        "_",
        "weather_get",
        "<|x|>",
        "get_weather:mcp:",
        "mcp:SEND",
        "functions_0",
        r"get\-weather",
    ],
)
def test_an_ambiguous_or_unknown_name_matches_no_tool(name: str) -> None:
    assert find_tool(name, TOOLS) is None


@pytest.mark.parametrize("name", ["functions:send", "function.Send", "tool/send", "tools:Send"])
def test_known_prefixes_before_a_tool_name_are_ignored(name: str) -> None:
    assert find_name(name, ["get_weather", "send"]) == "send"


def test_a_tool_name_with_different_word_boundaries_matches_only_if_unambiguous() -> None:
    assert find_name("GetWeather", ["get_weather", "getWeather"]) is None
    assert find_name("getWeather", ["get_weather", "getWeather"]) == "getWeather"
    assert find_name("todo_write", ["todowrite", "todoread"]) == "todowrite"
    assert find_name("tod_owrite", ["todowrite", "todo_write"]) is None
    assert find_name("Websearch", ["web_search", "websearch"]) == "websearch"
    assert find_name("parse_http_url", ["parseHTTPUrl", "parse_url"]) == "parseHTTPUrl"
