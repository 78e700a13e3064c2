"""The verdict on invented runs: missing, repeated and needless calls, and shown markup."""

import pytest

from benchmarks.real.bed import Need, Task, Tool, ToolSet
from benchmarks.real.judging import (
    APOLOGY,
    MadeCall,
    Reply,
    TaskRun,
    calls_in,
    exposed_markup,
    identical_calls,
    judge,
    judge_run,
    most_identical,
    read_arguments,
)
from proxy.conversation.json import JsonObject, JsonValue

NAMES = ("look", "send")
TOOLS = ToolSet(
    "made up",
    "",
    (Tool("look", "", {}, lambda _, __: {}), Tool("send", "", {}, lambda _, __: {}, True)),
    {},
    (),
)
TASK = Task(
    "Look at it and send it to Ann.",
    "chain",
    (Need("look", {"what": "it"}), Need("send", {"to": "ann", "text": "it-1"})),
)
NO_TOOL = Task("Thank you.", "none")
LOOK = MadeCall("look", {"what": "it"}, '{"id":"it-1"}', succeeded=True)
SEND = MadeCall("send", {"to": "Ann", "text": "it-1"}, '{"ok":true}', succeeded=True)
SEND_AGAIN = MadeCall("send", {"text": "IT-1", "to": "ann"}, '{"ok":true}', succeeded=True)
SEND_OTHERWISE = MadeCall("send", {"to": "Ann", "text": "Hi: it-1"}, '{"ok":true}', succeeded=True)
SEND_WRONG = MadeCall("send", {"to": "Bob", "text": "it-1"}, '{"ok":true}', succeeded=True)
REFUSED = MadeCall("send", {"to": "x"}, '{"error":"text must be given"}', succeeded=False)
BROKEN = MadeCall("send", None, '{"error":"no object"}', succeeded=False)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([LOOK, SEND], ""),
        (
            [SEND, LOOK],
            "",
        ),  # the order of calls is not judged
        ([LOOK, LOOK, REFUSED, BROKEN, SEND], ""),
        ([LOOK], "missing send"),
        ([], "missing look, send"),
        ([LOOK, REFUSED], "missing send"),
        ([LOOK, SEND, SEND], 'repeated send {"text":"it-1","to":"ann"}'),
        ([LOOK, SEND, SEND_AGAIN], 'repeated send {"text":"it-1","to":"ann"}'),
        ([LOOK, SEND, SEND_OTHERWISE], 'repeated send {"text":"hi: it-1","to":"ann"}'),
        ([LOOK, SEND_WRONG, SEND], 'needless send {"text":"it-1","to":"bob"}'),
        (
            [LOOK, SEND_WRONG, SEND_WRONG],
            'missing send; needless send {"text":"it-1","to":"bob"}; '
            'repeated send {"text":"it-1","to":"bob"}',
        ),
    ],
)
def test_a_task_is_right_if_each_need_is_met_exactly_once(
    calls: list[MadeCall], expected: str
) -> None:
    verdict = judge(TASK, calls, {"send"})
    assert str(verdict) == expected
    assert verdict.right == (not expected)


def test_duplicate_need_requires_two_calls() -> None:
    task = Task("Twice.", "single", (Need("send", {"to": "ann"}),) * 2)
    assert str(judge(task, [SEND], {"send"})) == "missing send"
    assert judge(task, [SEND, SEND], {"send"}).right
    assert str(judge(task, [SEND] * 3, {"send"})).startswith("repeated send")


def test_any_call_in_a_task_that_needs_no_tool_is_needless() -> None:
    assert judge(NO_TOOL, [], {"send"}).right
    for call in (LOOK, SEND, REFUSED):
        assert len(judge(NO_TOOL, [call], {"send"}).needless) == 1


CALL = '{"name": "send", "arguments": {"to": "Ann"}}'


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("It was sent to Ann.", ()),
        ("", ()),
        ("Use {braces} as in f'{x}', or {1, 2}.", ()),
        ('A JSON document such as {"a": 1} has braces.', ()),
        ('The function {"name": "other", "arguments": {}} does not exist here.', ()),
        ('{"name": "send"} has no arguments.', ("JSON of a call",)),
        (f"<tool_call>\n{CALL}\n</tool_call>", ("call markup", "JSON of a call")),
        ("Done.</tool_call>", ("call markup",)),
        ("<function=send><parameter=to>Ann</parameter></function>", ("call markup",)),
        ('<tool_response>\n{"ok": true}\n</tool_response>', ("result markup",)),
        (CALL, ("JSON of a call", "JSON as the answer")),
        (f"```json\n{CALL}\n```", ("JSON of a call", "JSON as the answer")),
        (f'{CALL}\n{{"ok": true}}', ("JSON of a call",)),
        (f"You can use this code:\n```json\n{CALL}\n```", ("JSON of a call",)),
        ('{"name": "send", "arguments": {"to": "An', ("JSON of a call",)),
        (
            '{"type": "function", "function": {"name": "look", "parameters": {}}}',
            ("JSON of a call", "JSON as the answer"),
        ),
        ('[{"name": "look", "arguments": {}}]', ("JSON of a call", "JSON as the answer")),
        ('{"ok": true}', ("JSON as the answer",)),
        ("27", ()),
        (
            '{"a", 1}',
            ("JSON as the answer",),
        ),  # this is no JSON, but it equals the result of a tool
    ],
)
def test_markup_and_json_of_calls_in_an_answer_are_recognized(
    text: str, kinds: tuple[str, ...]
) -> None:
    assert exposed_markup(text, NAMES, ['{"a", 1}', "plain words", "27"]) == kinds


def test_json_in_an_answer_is_no_call_if_the_task_has_no_tools() -> None:
    assert exposed_markup(f"{CALL} is a call.", (), ()) == ()


def test_calls_that_differ_in_key_order_or_case_count_as_equal() -> None:
    other = '{"arguments": {"to": "ann"}, "name": "send"}'
    cut = '{"name": "send", "arguments": {"to": "A'
    text = f"Sure:\n{CALL}\n```json\n{other}\n```\n{CALL.replace('Ann', 'Bob')}\n{cut}"
    keys = calls_in(text, NAMES)
    assert keys == ['send {"to":"ann"}', 'send {"to":"ann"}', 'send {"to":"bob"}']
    assert most_identical(keys) == 2
    assert most_identical([]) == 0


def test_call_without_name_or_argument_object_does_not_count() -> None:
    texts = ('{"name": 3, "arguments": {}}', '{"arguments": {}}', '{"name": "send", "args": "x"}')
    assert [calls_in(text, NAMES) for text in texts] == [[], [], []]


def test_equal_calls_of_a_generation_are_counted_in_text_and_tool_calls() -> None:
    text: list[list[JsonValue]] = [["text", CALL[:10]], ["text", f"{CALL[10:]}\n{CALL}"]]
    native: list[list[JsonValue]] = [
        ["call", 0, "a", "send"],
        ["arguments", 0, '{"to": '],
        ["arguments", 0, '"ann"}'],
        ["call", 1, "b", "send"],
        ["arguments", 1, "no JSON"],
        ["call", 2, None, "look"],
        ["finished", "tool_calls"],
    ]
    assert identical_calls(text, NAMES) == 2
    assert identical_calls(native, NAMES) == 1
    assert identical_calls([*text, *native], NAMES) == 3
    assert identical_calls([["finished", "stop"]], NAMES) == 0


@pytest.mark.parametrize(
    ("arguments", "read"), [('{"a": 1}', {"a": 1}), ("", {}), ("[1]", None), ("{", None)]
)
def test_arguments_that_are_no_json_object_are_read_as_none(
    arguments: str, read: JsonObject | None
) -> None:
    assert read_arguments(arguments) == read


def run(*replies: Reply, calls: tuple[MadeCall, ...] = (), problem: str = "") -> TaskRun:
    return TaskRun(1, 1, replies, calls, 1.0, problem)


def test_a_run_with_the_needed_calls_and_a_final_text_is_right() -> None:
    replies = (Reply("", 1), Reply("", 1), Reply("Sent to Ann.", 0))
    judged = judge_run(run(*replies, calls=(LOOK, SEND)), TASK, TOOLS)
    assert judged.right
    assert judged.has_answer
    assert judged.exposed == ()
    assert not judged.has_apology


def test_a_run_with_a_failed_request_is_wrong() -> None:
    judged = judge_run(run(Reply("Sent.", 0), calls=(LOOK, SEND), problem="500"), TASK, TOOLS)
    assert not judged.right
    assert not judged.has_answer


@pytest.mark.parametrize(
    "replies",
    [
        (),
        (Reply("", 0),),
        (Reply("", 1),),  # the last permitted request still returned a call
        (Reply('<tool_response>{"ok":true}</tool_response>', 0),),
        (Reply('{"id":"it-1"}', 0),),
        (Reply(f"{APOLOGY} in 2 attempts.", 0),),
    ],
)
def test_a_last_reply_that_is_empty_or_markup_or_an_apology_is_no_answer(
    replies: tuple[Reply, ...],
) -> None:
    assert not judge_run(run(*replies, calls=(LOOK, SEND)), TASK, TOOLS).has_answer


def test_an_apology_is_counted_only_if_a_call_has_succeeded() -> None:
    apology = Reply(f"{APOLOGY} in 2 attempts: a call in an unknown syntax (look).", 0)
    assert judge_run(run(apology, calls=(LOOK,)), TASK, TOOLS).has_apology
    assert not judge_run(run(apology, calls=(REFUSED,)), TASK, TOOLS).has_apology
    assert not judge_run(run(Reply("Sorry.", 0), calls=(LOOK,)), TASK, TOOLS).has_apology


def test_markup_counts_in_every_reply_that_the_user_saw() -> None:
    replies = (Reply(CALL, 1), Reply("</tool_call>", 1), Reply("Sent.", 0))
    judged = judge_run(run(*replies, calls=(LOOK, SEND)), TASK, TOOLS)
    assert judged.exposed == (("JSON of a call", "JSON as the answer"), ("call markup",))
    assert judged.has_answer
