"""Temper's guarantees to clients, with real engines, streamed and not.

Some guarantees are impossible if an engine has no grammar, no token count or no log probabilities.
The row then says so, and the remaining guarantees are tested: no broken call, no markup, no 5xx.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import httpx
import pytest

from proxy.context.budget import NUDGES
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.engines.asking import (
    CHAT,
    SMALL_TALK,
    TICKET,
    TICKETS,
    TOOLS,
    USER_MESSAGES,
    WEATHER,
    Server,
    document_of,
    message,
    through_temper,
)
from tests.engines.engines import RealEngine, Running
from tests.engines.table import Row
from tests.fakes.answers import Answer, read_answer
from tests.timeouts import TIMEOUT_SECONDS

LARGEST_WINDOW = 16_384  # of the tests that fill the window
ANSWER = 8  # tokens of an answer
FULL = 0.75  # share of the window; a conversation of this size is not compacted
A_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
NAMED: JsonObject = {"type": "function", "function": {"name": "get_weather"}}
USAGE: JsonObject = {"stream_options": {"include_usage": True}}
MOST = 1800
ENDLESS: JsonObject = {"max_tokens": MOST, "ignore_eos": True}


@dataclass(frozen=True)
class Judge:
    """Checks the invariants of every response, and counts markup in texts."""

    engine: RealEngine
    row: Row

    def calls(
        self,
        answer: Answer,
        tools: Sequence[JsonObject],
        name: str = "",
        *,
        is_silent: bool = False,
    ) -> bool:
        """Return whether the calls are valid and expected.

        If calls are forbidden (`is_silent`), the reply is text, even if it looks like a call. An
        engine without a grammar may return only broken markup.
        """
        got = through_temper(answer)
        if answer.error is not None:  # a partial call is an error, and clients do not run it
            assert answer.error["code"] == "call_broke_off", answer.error
            assert not self.engine.constrains, answer.error
            return False
        is_run = answer.reason == "tool_calls"  # clients do not run truncated calls
        assert is_run == got.is_one_of(tools) or answer.reason == "length", got.calls
        if not is_silent:
            self.row.note("markup", is_good=not got.leaks)
            assert not got.leaks or not self.engine.constrains, got.text
        return is_run and got.is_one_of(tools, name)


@pytest.fixture
def judge(engine: RealEngine, row: Row) -> Judge:
    return Judge(engine, row)


def test_small_talk_is_answered_with_text_although_tools_are_offered(
    server: Server, row: Row, judge: Judge, *, stream: bool
) -> None:
    pieces = 0
    for words in SMALL_TALK:
        answer = server.ask(words, TOOLS, stream=stream)
        pieces += len(answer.pieces)
        assert answer.error is None
        assert not judge.calls(answer, TOOLS)
        is_good = bool(answer.text) and answer.reason == "stop"
        row.note("chat", is_good=is_good)
        assert is_good
    assert not stream or pieces > len(SMALL_TALK)  # at least one reply has several chunks


def test_a_request_that_needs_a_tool_is_answered_with_a_valid_call(
    server: Server, direct: Server, row: Row, judge: Judge, *, stream: bool
) -> None:
    good = []
    for user_message, name in USER_MESSAGES:
        good.append(judge.calls(server.ask(user_message, TOOLS, stream=stream), TOOLS, name))
        row.note("tools", is_good=good[-1])
        if not stream:
            alone = direct.calls(user_message, TOOLS)
            row.note_direct("tools", is_good=alone.is_one_of(TOOLS, name) and not alone.leaks)
            row.note_direct("markup", is_good=not alone.leaks)
    assert sum(good) >= judge.engine.least_calls


@pytest.mark.parametrize("choice", ["required", "named", "none"])
def test_the_tool_choices_required_named_and_none_are_respected(
    server: Server, direct: Server, row: Row, judge: Judge, choice: str, *, stream: bool
) -> None:
    chosen: JsonValue = NAMED if choice == "named" else choice
    user_messages = (
        [user_message for user_message, _ in USER_MESSAGES[::3]] if choice == "none" else SMALL_TALK
    )
    name = "get_weather" if choice == "named" else ""
    good = []
    for words in user_messages:
        answer = server.ask(words, TOOLS, stream=stream, tool_choice=chosen)
        is_called = judge.calls(answer, TOOLS, name, is_silent=choice == "none")
        good.append(is_called != (choice == "none"))
        row.note(choice, is_good=good[-1])
        if not stream:
            alone = direct.calls(words, TOOLS, tool_choice=chosen)
            kept = not alone.calls if choice == "none" else alone.is_one_of(TOOLS, name)
            row.note_direct(choice, is_good=kept)
    if judge.engine.constrains or choice == "none":
        assert all(good)


@pytest.mark.parametrize("way", ["ladder", "required", "named"])
def test_a_call_is_forced_into_its_schema(
    server: Server, direct: Server, row: Row, judge: Judge, way: str, *, stream: bool
) -> None:
    """An enum that the model would not write unconstrained is forced in three ways.

    In the way "ladder" no call is required, so the model may also answer in words.
    """
    ticket: JsonObject = {"type": "function", "function": {"name": "open_ticket"}}
    choices: dict[str, JsonObject] = {"ladder": {}, "required": {"tool_choice": "required"}}
    more = choices.get(way, {"tool_choice": ticket})
    tools = (TICKET,) if way == "required" else (TICKET, WEATHER)
    good = []
    for user_message in TICKETS:
        answer = server.ask(user_message, tools, stream=stream, **more)
        is_called = judge.calls(answer, tools, "open_ticket")
        if is_called or way != "ladder" or is_exhausted(answer):
            good.append(is_called)
            row.note("constrained", is_good=is_called)
        if not stream:
            alone = direct.calls(user_message, tools, **more).is_one_of(tools, "open_ticket")
            row.note_direct("constrained", is_good=alone)
    if judge.engine.constrains:
        assert all(good)


def test_an_oversized_prompt_is_a_400_with_its_token_count_and_the_window(
    server: Server, running: Running, row: Row, engine: RealEngine, *, stream: bool
) -> None:
    window = window_of(server, running, row, "overflow")
    response = server.post([message("user", "word " * (3 * window))], stream=stream)
    error = cast("JsonObject", document_of(response).get("error") or {})
    is_refused = (response.status_code, error.get("code")) == (400, "context_length_exceeded")
    row.note("overflow", is_good=is_refused)
    assert response.status_code < 500
    if engine.keeps_its_window:
        assert is_refused
        assert str(window) in str(error["message"])


def test_a_conversation_that_fits_is_not_compacted(
    server: Server, direct: Server, running: Running, judge: Judge, *, stream: bool
) -> None:
    """An earlier request has unusual text, from which an estimate would learn a wrong ratio."""
    window = window_of(server, running, judge.row, "counting")
    server.post([message("user", "\N{SNOWMAN}\N{CAT FACE} " * window)])
    line = "Tell me what the weather is in Paris and in Rome today."
    sizes = [counted(direct, conversation(line, turns)) for turns in (2, 4)]
    turns = int((window * FULL - sizes[0]) / ((sizes[1] - sizes[0]) / 2)) + 2
    messages = conversation(line, turns)
    expected = counted(direct, messages)
    assert expected < window
    answer = read_answer(server.post(messages, stream=stream, max_tokens=8, **usage_if(stream)))
    counts = cast("JsonObject", answer.usage or {})
    is_whole = counts.get("prompt_tokens") == expected
    judge.row.note("counting", is_good=is_whole)
    assert answer.error is None
    if judge.engine.counts:
        assert "folded=0" in answer.report.get("context", "folded=0")
        assert is_whole


def test_random_conversations_that_fit_are_not_compacted(
    server: Server, direct: Server, running: Running, judge: Judge
) -> None:
    """The conversations mix prose, code, digits and other alphabets; some exceed the window."""
    if not judge.engine.conversations:
        pytest.skip("the engine counts nothing, so estimates decide; that is no matter of extras")
    window = window_of(server, running, judge.row, "uncut")
    chance = random.Random(28)
    fitting = 0
    while fitting < judge.engine.conversations:
        messages = random_conversation(chance, window)
        expected = counted(direct, messages)
        answer = read_answer(server.post(messages, max_tokens=ANSWER))
        if not 0 < expected <= window - ANSWER - NUDGES:
            continue
        fitting += 1
        counts = cast("JsonObject", answer.usage or {})
        is_whole = counts.get("prompt_tokens") == expected
        judge.row.note("uncut", is_good=is_whole)
        assert is_whole, answer.report


def test_a_client_disconnect_stops_the_generation_of_the_engine(
    server: Server, running: Running, row: Row
) -> None:
    if running.generated is None:
        row.remarks["cancel"] = "not observable"
        pytest.skip("the engine does not say what it generates; that is no matter of extras")
    # a small model needs only a second, so on a busy machine one good run of three suffices
    is_ended = any(generated_after_disconnect(server, running) < MOST for _ in range(3))
    row.note("cancel", is_good=is_ended)
    assert is_ended


def generated_after_disconnect(server: Server, running: Running) -> int:
    """Return the number of tokens generated for a client that disconnects after the first one."""
    assert running.generated is not None
    before = running.generated()
    body: JsonObject = {"model": server.model, "messages": [message("user", "Hello!")], **ENDLESS}
    with server.client.stream("POST", CHAT, json={**body, "stream": True}) as answer:
        next(line for line in answer.iter_lines() if '"content"' in line)
    return settled(running) - before


def test_a_response_contains_the_token_usage(server: Server, row: Row, *, stream: bool) -> None:
    answer = server.ask("Hello!", TOOLS, stream=stream, **usage_if(stream))
    counts = cast("dict[str, int]", answer.usage or {})
    is_good = counts.get("prompt_tokens", 0) > 0 and counts.get("completion_tokens", 0) > 0
    row.note("usage", is_good=is_good)
    assert is_good
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]


def test_log_probabilities_are_returned_where_supported(
    server: Server, direct: Server, row: Row, *, stream: bool
) -> None:
    options: JsonObject = {"logprobs": True, "top_logprobs": 2, "max_tokens": 8}
    answer = server.ask("Hello!", stream=stream, **options)
    documents: Sequence[JsonValue] = answer.chunks or [json.parse(answer.body)]
    has_some = any(map(logprobs_in, documents))
    row.note("logprobs", is_good=has_some)
    document = document_of(direct.post([message("user", "Hello!")], **options))
    if not stream:
        row.note_direct("logprobs", is_good=logprobs_in(document))
    assert answer.error is None
    assert has_some >= logprobs_in(document)


def test_cached_tokens_are_reported_where_known(server: Server, direct: Server, row: Row) -> None:
    messages = conversation("Tell me what the weather is in Lisbon and in Porto today.", 12)
    server.post(messages, max_tokens=4)
    document = document_of(server.post(messages, max_tokens=4))
    cached = cached_in(document_of(direct.post(messages, max_tokens=4)))
    row.note("cache", is_good=cached_in(document) > 0)
    row.note_direct("cache", is_good=cached > 0)
    assert cached == 0 or cached_in(document) > 0


@pytest.mark.parametrize("wrong", ["temperature", "picture"])
def test_a_request_that_the_engine_rejects_is_a_4xx(
    server: Server, row: Row, wrong: str, *, stream: bool
) -> None:
    picture: JsonObject = {"type": "image_url", "image_url": {"url": A_PICTURE}}
    shown: JsonObject = {"role": "user", "content": [picture]}
    hot: JsonObject = {"temperature": "hot"} if wrong == "temperature" else {}
    messages = [shown] if wrong == "picture" else [message("user", "Hello!")]
    response = server.post(messages, stream=stream, **hot)
    if wrong == "picture" and response.status_code == httpx.codes.OK:
        row.remarks["errors"] = "accepts images"
        return
    error = cast("JsonObject", document_of(response).get("error") or {})
    is_good = 400 <= response.status_code < 500 and bool(error.get("message"))
    row.note("errors", is_good=is_good)
    assert is_good, response.text
    assert error["code"] != "context_length_exceeded"


def usage_if(stream: bool) -> JsonObject:
    return USAGE if stream else {}


def conversation(line: str, turns: int) -> list[JsonObject]:
    pairs = [
        [message("user", f"{line} {turn}"), message("assistant", line)] for turn in range(turns)
    ]
    return [*(message for pair in pairs for message in pair), message("user", "Hello!")]


def random_conversation(chance: random.Random, window: int) -> list[JsonObject]:
    """Return a random conversation of 10 to 110 % of the window."""
    materials = (
        "word ",
        "Tell me the time. ",
        "0xf3a9 ",
        "if (x[i]) { ",
        "\t\n  ",
        "é" * 9,
        "请先列出",
    )
    messages = [message("user", "Hello!")]
    wanted = chance.uniform(0.1, 1.1) * window
    size = 0.0
    while size < wanted:
        material = chance.choice(materials)
        text = f"{len(messages)} {material * chance.randint(4, 48)}"
        size += len(text.encode()) / chance.uniform(1.5, 4)
        function: JsonObject = {"name": "get_time", "arguments": json.dump_text({"city": text[:9]})}
        call: JsonObject = {"id": f"c{len(messages)}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]
        if chance.random() < 0.2:
            messages += [message("assistant", text), message("user", text[::-1])]
    return messages


def counted(direct: Server, messages: Sequence[JsonObject]) -> int:
    """Return the engine's count of a prompt; 0 if the prompt is too long for the engine."""
    document = document_of(direct.post(messages, max_tokens=1))
    usage = cast("JsonObject", document.get("usage") or {})
    return cast("int", usage.get("prompt_tokens") or 0)


def is_exhausted(answer: Answer) -> bool:
    return "exhausted" in answer.report.get("outcome", "")


def window_of(server: Server, running: Running, row: Row, what: str) -> int:
    """Return the window, at most `LARGEST_WINDOW`."""
    listed = cast("list[JsonObject]", server.client.get("/v1/models").json()["data"])
    windows = [model.get("context_window") for model in listed if model["id"] == server.model]
    window = running.window or int(str(windows[0] or 0))
    if not 0 < window <= LARGEST_WINDOW:
        row.remarks[what] = f"not tried ({window or 'no known'} window)"
        pytest.skip(f"a window of {window or 'unknown size'} is not filled, whatever extras say")
    return window


def settled(running: Running) -> int:
    """Return the number of generated tokens after generation has stopped."""
    assert running.generated is not None
    until, last = time.monotonic() + TIMEOUT_SECONDS, -1
    while (now := running.generated()) != last and time.monotonic() < until:
        last = now
        time.sleep(0.5)
    return last


def logprobs_in(document: JsonValue) -> bool:
    choices = cast("list[JsonObject]", cast("JsonObject", document).get("choices") or [])
    logprobs = [cast("JsonObject", choice.get("logprobs") or {}) for choice in choices]
    return any(entry.get("content") for entry in logprobs)


def cached_in(document: JsonObject) -> int:
    usage = cast("JsonObject", document.get("usage") or {})
    details = cast("JsonObject", usage.get("prompt_tokens_details") or {})
    return cast("int", details.get("cached_tokens") or 0)
