"""Tools on demand: summaries, and the definitions that `find_tools` returns."""

import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import Tool
from proxy.tools.on_demand import find_definitions, summary

_LEAST_FOUND = 0.95
_DISTRACTORS = 50


def tool(name: str, description: str, parameters: JsonValue) -> Tool:
    assert isinstance(parameters, dict)
    function: JsonValue = {"name": name, "description": description, "parameters": parameters}
    return Tool(name, parameters, json.dump({"type": "function", "function": function}))


CITY: JsonValue = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = tool("getWeather", "Current weather. With " + "details " * 40, CITY)
MAIL = tool("send_mail", "Send a mail", {"type": "object", "properties": {}})


def test_summary_keeps_only_the_first_sentence_unless_the_whole_definition_is_shorter() -> None:
    assert b'"description":"Current weather","parameters":{"type":"object"}' in (
        summary(WEATHER).source.replace(b": ", b":").replace(b", ", b",")
    )
    small = tool("a", "b", {})
    assert summary(small) is small


@pytest.mark.parametrize("query", ["weather forecasts", "city", "getWeather"])
def test_a_tool_is_found_by_its_name_or_its_description_or_its_parameters(query: str) -> None:
    assert find_definitions(query, (MAIL, WEATHER)).startswith("getWeather: Current weather. ")


@pytest.mark.parametrize("query", ["", "火车"])
def test_a_query_that_matches_no_tool_returns_a_note(query: str) -> None:
    assert find_definitions(query, (MAIL, WEATHER)).startswith("No tool matches")


@pytest.mark.skipif(find_spec("bfcl_eval") is None, reason="needs the package bfcl-eval")
def test_the_right_tool_of_most_bfcl_tasks_is_found_among_fifty_others() -> None:
    from temper_evals.bfcl import read_lines
    from temper_evals.scenarios.worlds import objects_in

    spec = find_spec("bfcl_eval")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    questions = read_lines(data / "BFCL_v4_live_multiple.json")
    answers = read_lines(data / "possible_answer" / "BFCL_v4_live_multiple.json")
    truth = {str(answer["id"]): objects_in(answer["ground_truth"]) for answer in answers}
    offered = {
        str(question["id"]): {
            str(function["name"]): tool(
                str(function["name"]),
                str(function.get("description")),
                function.get("parameters"),
            )
            for function in objects_in(question["function"])
        }
        for question in questions
    }
    all_tools = {name: tool for tools in offered.values() for name, tool in tools.items()}
    draw = random.Random(7)
    hits = 0
    for question in questions:
        name = str(question["id"])
        tools = offered[name]
        others = [other for other in all_tools if other not in tools]
        chosen = [*tools.values(), *(all_tools[key] for key in draw.sample(others, _DISTRACTORS))]
        draw.shuffle(chosen)
        turns = question["question"]
        assert isinstance(turns, list)
        messages = objects_in(turns[0])
        words = " ".join(
            str(message["content"]) for message in messages if message["role"] == "user"
        )
        result = find_definitions(words, chosen)
        hits += all(
            f"\n\n{right}: " in f"\n\n{result}"
            for right in (next(iter(call)) for call in truth[name])
        )
    assert hits / len(questions) >= _LEAST_FOUND
