"""The comparison of streamed replies with whole ones, on cases made here."""

from pathlib import Path

import pytest

from benchmarks.rescue_chunking import Streamed, difference, main, read, streamed_in
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall

CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
REPLY = f"<think>hm</think>\n\nLet me look.\n{CALL}"
TOOLS: list[JsonValue] = [{"type": "function", "function": {"name": "get_time"}}]


def pieces_of(reply: str) -> list[JsonValue]:
    return [reply[start : start + 5] for start in range(0, len(reply), 5)]


def case(reply: str, **others: JsonValue) -> JsonObject:
    return {
        "id": "own-1",
        "tools": TOOLS,
        "raw": reply,
        "streaming_chunks": pieces_of(reply),
        **others,
    }


def file_of(folder: Path, *cases: JsonObject) -> str:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dump_text(one) + "\n" for one in cases), encoding="utf-8")
    return str(path)


def test_cases_that_do_not_say_how_they_arrived_are_left_out() -> None:
    bare_tool: JsonObject = {"name": "get_time"}
    cases = [
        case(REPLY, id="a"),
        case(REPLY, streaming_chunks=None),
        case(REPLY, streaming_chunks=[]),
        case("Hi", id="b", tools=[bare_tool], streaming_chunks=["H", "i"]),
        case("Hi", id="c", tools=None, streaming_chunks=["Hi"]),
    ]
    first, *others = streamed_in(map(json.dump_text, cases))
    assert (first.id, first.tools, first.raw) == ("a", ("get_time",), REPLY)
    assert "".join(first.pieces) == REPLY
    assert others == [
        Streamed("b", ("get_time",), "Hi", ("H", "i")),
        Streamed("c", (), "Hi", ("Hi",)),
    ]


def test_a_line_that_is_no_case_is_an_error() -> None:
    with pytest.raises(TypeError, match="a case is an object"):
        list(streamed_in(["[]"]))


def test_calls_and_the_text_that_was_heard_are_read() -> None:
    outcome = read([REPLY], ["get_time"])
    assert outcome.reply.calls == (WrittenCall("get_time", {}),)
    assert outcome.heard == outcome.reply.text == "Let me look."


def test_replies_that_are_read_the_same_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file_of(tmp_path, case(REPLY), case("Hello, world."))]) == 0
    count = len(pieces_of(REPLY)) + len(pieces_of("Hello, world."))
    assert capsys.readouterr().out == f"2 replies in {count} pieces, 0 read differently\n"


def test_a_reply_that_is_read_differently_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = case(REPLY, id="own-2", streaming_chunks=pieces_of(REPLY)[:-6])
    assert main([file_of(tmp_path, case(REPLY), other)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("own-2\n  whole: ")
    assert printed.endswith("1 read differently\n")


def test_it_is_a_difference_if_only_the_text_differs() -> None:
    assert difference(Streamed("own-3", (), "Hello", ("Hel", "lo"))) == ""
    assert difference(Streamed("own-3", (), "Hello", ("Hel", "p"))) != ""


def test_a_comparison_of_nothing_is_no_success(tmp_path: Path) -> None:
    assert main([file_of(tmp_path, case(REPLY, streaming_chunks=None))]) == 1
