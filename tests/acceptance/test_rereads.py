"""`temper doctor --cache` predicts exactly the tokens that a real llama-server reads again.

Each case sends a conversation, changes it in one way, and sends it again. The first message and the
system prompt begin with the number of the case, so that the cache has no prefix from other cases.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object, member
from proxy.processes.process import RunningServer
from tests.fakes.command import ended, running_temper
from tests.fakes.histories import call, called, result, said
from tests.fakes.llama import plan_for, serving
from tests.fakes.scripts import SCRIPTS, TIME_TOOL, WEATHER_TOOL
from tests.timeouts import TIMEOUT_SECONDS

CHAT = "/v1/chat/completions"
REPLY = str(SCRIPTS["<tool_response>"])  # the template adds this text to every prompt with a result
EXTRA_TOOL: JsonObject = {"type": "function", "function": {"name": "extra", "parameters": {}}}
SYSTEM = "It is 2026-10-05 12:30, turn 7 of session 0a1b2c3d4e. Be brief. 日本"
HISTORY: list[JsonObject] = [
    said("user", "What is the weather?"),
    called(call("a", "get_weather", '{"city":"Rome"}')),
    result("a", '{"weather": "sun", "wind": "light"}'),
    said("assistant", "It is sunny."),
    said("user", "And the time?"),
    called(call("b", "get_time"), content="One moment."),
    result("b", "12:31 " * 20),
    said("assistant", "It is 12:31."),
    said("user", "Thank you 😅"),
]

Body = JsonObject
Change = Callable[[list[JsonObject], list[JsonObject]], object]


def in_system(old: str, new: str) -> Change:
    def change(messages: list[JsonObject], _tools: list[JsonObject]) -> None:
        messages[0]["content"] = str(messages[0]["content"]).replace(old, new)

    return change


def in_message(index: int, content: str, **more: JsonValue) -> Change:
    return lambda messages, _tools: messages[index].update(content=content, **more)


def in_tool(*path: str, value: JsonValue) -> Change:
    def change(_messages: list[JsonObject], tools: list[JsonObject]) -> None:
        *folders, name = path
        cast("JsonObject", member(tools[0], "function", *folders))[name] = value

    return change


def without(first: int, last: int) -> Change:
    return lambda messages, _tools: messages.__delitem__(slice(first, last))


def with_message(index: int, role: str, content: str) -> Change:
    return lambda messages, _tools: messages.insert(index, said(role, content))


def pruned(messages: list[JsonObject], _tools: list[JsonObject]) -> None:
    for message in messages:
        if message["role"] == "tool":
            message["content"] = "[old result removed]"


def swapped(messages: list[JsonObject], _tools: list[JsonObject]) -> None:
    messages[4], messages[8] = messages[8], messages[4]


def summarized(messages: list[JsonObject], _tools: list[JsonObject]) -> None:
    messages[2:8] = [said("assistant", "Summary: sun in Rome, 12:31.")]


CHANGES: dict[str, Change] = {
    # the system prompt
    "timestamp": in_system("12:30", "12:31"),
    "date": in_system("10-05", "10-06"),
    "counter": in_system("turn 7", "turn 8"),
    "session id": in_system("3d4e", "3d4f"),
    "sentence added to the system prompt": in_system("日本", "日本 Be kind."),
    "sentence removed from the system prompt": in_system("Be brief. ", ""),
    "other script in the system prompt": in_system("日本", "日木"),
    "longer timestamp": in_system("12:30", "12:30:01"),
    # the tools
    "tool added": lambda _messages, tools: tools.append(EXTRA_TOOL),
    "tool added in front": lambda _messages, tools: tools.insert(0, EXTRA_TOOL),
    "tool removed": lambda _messages, tools: tools.pop(),
    "first tool removed": lambda _messages, tools: tools.pop(0),
    "all tools removed": lambda _messages, tools: tools.clear(),
    "tools reordered": lambda _messages, tools: tools.reverse(),
    "description changed": in_tool("description", value="Tell the weather in one city."),
    "parameter added": in_tool("parameters", "properties", "hour", value={"type": "integer"}),
    "requirement removed": in_tool("parameters", "required", value=[]),
    "tool renamed": in_tool("name", value="get_the_weather"),
    # messages
    "question edited": in_message(5, "And the exact time?"),
    "answer edited": in_message(4, "It is sunny in Rome."),
    "result edited": in_message(3, '{"weather": "rain", "wind": "light"}'),
    "arguments edited": lambda messages, _tools: messages[2].update(
        called(call("a", "get_weather", '{"city":"Lima"}'))
    ),
    "results pruned": pruned,
    "words before a call removed": in_message(6, ""),
    "call and result deleted": without(2, 4),
    "answer deleted": without(4, 5),
    "two turns deleted": without(2, 8),
    "reminder inserted": with_message(5, "system", "Remember to be brief."),
    "reminder inserted early": with_message(2, "user", "By the way."),
    "messages swapped": swapped,
    "history summarized": summarized,
    "last question edited": in_message(9, "Thanks."),
    "last question longer": in_message(9, "Thank you 😅 very much"),
    "emoji replaced": in_message(9, "Thank you 😀"),
    "line break in a result": in_message(3, '{"weather": "sun",\n"wind": "light"}'),
    "words before a call added": in_message(2, "Let me see."),
    # conversations that branch from an earlier message
    "same request again": lambda _messages, _tools: None,
    "last turn undone": without(6, 10),
    "branch from an earlier question": lambda messages, _tools: messages.__setitem__(
        slice(6, None), [said("assistant", "Noon."), said("user", "Really?")]
    ),
    "continued after a changed clock": lambda messages, _tools: (
        in_system("12:30", "12:32")(messages, []),
        messages.__iadd__([said("assistant", REPLY), said("user", "Go on.")]),
    ),
}
CAUSED_BY_THE_CLIENT = 38  # not 40: two cases only send the prompt, or its beginning, again


@pytest.fixture(scope="module")
def engine(scripted_model: Path) -> Iterator[RunningServer]:
    """A server with only one slot: it always holds the previous prompt."""
    with serving(plan_for(scripted_model, slots=1)) as server:
        yield server


def body_of(number: int) -> Body:
    first, *rest = copy.deepcopy(HISTORY)
    first["content"] = f"Case {number}: {first['content']}"
    return {
        "model": "scripted",
        "messages": [said("system", f"Case {number}. {SYSTEM}"), first, *rest],
        "tools": [copy.deepcopy(WEATHER_TOOL), copy.deepcopy(TIME_TOOL)],
    }


def changed(body: Body, change: Change) -> Body:
    other = copy.deepcopy(body)
    messages, tools = (cast("list[JsonObject]", other[name]) for name in ("messages", "tools"))
    change(messages, tools)
    return other if tools else {**other, "tools": []}


def send(client: httpx.Client, body: Body) -> JsonObject:
    """Send a request; return the timings of the engine."""
    response = client.post(CHAT, json=body, headers={"x-temper-text-policy": "accept"})
    assert response.status_code == 200, response.text
    return as_object(json.parse(response.content))


def requests_of(report: JsonObject) -> list[list[JsonObject]]:
    conversations = cast("list[JsonObject]", report["conversations"])
    return [cast("list[JsonObject]", each["requests"]) for each in conversations]


def examine(recording: Path, engine: RunningServer) -> JsonObject:
    flags = ("--cache", str(recording), "--backend-url", engine.base_url, "--json")
    environment = {"TEMPER_BACKEND__API_KEY": engine.api_key}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        finished = ended("doctor", *flags)
    assert finished.returncode == 0, finished.stderr
    return as_object(json.parse(finished.stdout))


@contextmanager
def recorded(engine: RunningServer, recording: Path) -> Iterator[httpx.Client]:
    environment = {
        "TEMPER_BACKEND__API_KEY": engine.api_key,
        "TEMPER_RECORDING__PATH": str(recording),
    }
    with (
        running_temper("--backend-url", engine.base_url, environment=environment) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        yield client


def test_the_predicted_tokens_equal_those_that_the_engine_has_read(
    engine: RunningServer, tmp_path: Path
) -> None:
    counted: dict[str, JsonValue] = {}
    with recorded(engine, tmp_path / "recording.jsonl") as client:
        for number, (name, change) in enumerate(CHANGES.items()):
            body = body_of(number)
            send(client, body)
            counted[name] = member(send(client, changed(body, change)), "timings", "prompt_n")
    pairs = requests_of(examine(tmp_path / "recording.jsonl", engine))
    assert len(pairs) == len(CHANGES) == 40
    predicted = {name: pair[1]["unavoidable"] for name, pair in zip(CHANGES, pairs, strict=True)}
    assert predicted == counted
    assert [pair[1]["read"] for pair in pairs] == [*counted.values()]
    causers = [pair[1]["causer"] for pair in pairs]
    assert causers.count("client") == CAUSED_BY_THE_CLIENT
    assert causers.count(None) == len(CHANGES) - CAUSED_BY_THE_CLIENT


def test_tokens_read_again_after_compaction_are_counted_exactly_and_attributed_to_temper(
    engine: RunningServer, tmp_path: Path
) -> None:
    body = body_of(100)
    messages = cast("list[JsonObject]", body["messages"])
    counted = []
    with recorded(engine, tmp_path / "recording.jsonl") as client:
        for number in range(16):
            counted.append(member(send(client, body), "timings", "prompt_n"))
            messages += [
                called(call(f"c{number}", "get_time")),
                result(f"c{number}", f"{number} o'clock, " * 90),
            ]
    (rows,) = requests_of(examine(tmp_path / "recording.jsonl", engine))
    assert [row["read"] for row in rows] == counted
    assert [row["unavoidable"] for row in rows[1:]] == counted[1:]
    reasons = [row["reason"] for row in rows if row["causer"] is not None]
    assert reasons[0] == "Temper shortened the conversation (cut number 1)"
    assert {row["causer"] for row in rows} == {None, "temper"}
