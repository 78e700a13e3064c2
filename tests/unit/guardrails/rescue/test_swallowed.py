import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.swallowed import find_leak, reread

BAR = "\uff5c"
LOOK: tuple[str, object] = ("look", {})
NAMES = ("look", "run")


def run(name: str, arguments: JsonObject) -> list[tuple[str, object]]:
    call = WrittenCall(name, json.dump_text(arguments), "a")
    calls = reread(call, order_syntaxes(()), NAMES)
    return [(call.name, json.parse(str(call.arguments))) for call in calls]


@pytest.mark.parametrize(
    ("value", "calls"),
    [
        ("ls</parameter>\n</function>\n</tool_call>", [("run", {"do": "ls"})]),
        ("ls\n</parameter>\n</function>", [("run", {"do": "ls"})]),
        (f"ls</{BAR}DSML{BAR}parameter>", [("run", {"do": "ls"})]),
        (f"ls</{BAR}DSML{BAR}param", [("run", {"do": "ls"})]),
        ("ls</arg_value>", [("run", {"do": "ls"})]),
        ("ls<|close|>argument<|sep|>", [("run", {"do": "ls"})]),
        (
            "ls</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=look>\n</function>",
            [("run", {"do": "ls"}), LOOK],
        ),
        ("ls\n</parameter>\n<parameter=at>\n5", [("run", {"do": "ls", "at": "5"})]),
        (
            "ls</arg_value><arg_key>at</arg_key><arg_value>5</arg_value>",
            [("run", {"do": "ls", "at": "5"})],
        ),
    ],
)
def test_a_call_mark_in_a_value_ends_it_and_later_arguments_and_calls_are_read(
    value: str, calls: list[tuple[str, object]]
) -> None:
    assert run("run", {"do": value}) == calls
    (_, arguments), *later_calls = calls
    assert isinstance(arguments, dict)
    assert run("run", {"by": 1, "do": value}) == [("run", {"by": 1, **arguments}), *later_calls]


@pytest.mark.parametrize(
    "value",
    [
        "grep '</parameter>' src",
        "<tool_call>\n<function=look>\n<parameter=do>\nls\n</parameter>\n</function>\n</tool_call>",
        '<parameter name="a">1</parameter>',
        "</p>",
        "a < b",
        "",
    ],
)
def test_a_value_with_intended_markup_is_unchanged(value: str) -> None:
    assert run("run", {"do": value}) == [("run", {"do": value})]
    assert find_leak({"do": value, "by": 1}) is None


@pytest.mark.parametrize("value", ["5</parameter>", "ls\n</tool_call>", "ls</parameter> <b>c</b>"])
def test_a_possibly_intended_call_mark_in_a_value_is_kept_and_reported(value: str) -> None:
    assert run("run", {"do": value}) == [("run", {"do": value})]
    assert find_leak({"by": "x", "do": value}) == "do"


def test_nested_values_are_searched_for_marks_of_arguments_but_not_of_calls() -> None:
    assert find_leak({"by": [], "do": [{"it": ["x", "5</parameter>"]}]}) == "do"
    assert find_leak({"by": [], "do": [{"it": ["x", "</tool_call>"]}]}) is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("run<arg_key>do</arg_key><arg_value>ls</arg_value>", {"do": "ls"}),
        ("run>\n<parameter=do>\nls\n</parameter>", {"do": "ls"}),
        ('run{"do": "ls"}', {"do": "ls"}),
        ("<tool_call>run", {}),
    ],
)
def test_arguments_inside_a_tool_name_are_moved_to_the_arguments(
    name: str, arguments: JsonObject
) -> None:
    assert run(name, {}) == [("run", arguments)]
    assert run(name, {"by": 1}) == [("run", {"by": 1, **arguments})]


@pytest.mark.parametrize("arguments", ["{<", '[1, "<"]', "{}"])
def test_arguments_that_cannot_be_read_again_are_unchanged(arguments: str) -> None:
    call = WrittenCall("run", arguments)
    assert reread(call, order_syntaxes(()), NAMES) == (call,)
    assert reread(WrittenCall("run", {}), (), ())[0].arguments == {}
