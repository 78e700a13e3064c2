import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.registry import SYNTAXES, find_syntax
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.syntaxes.marked_json import marked_json
from proxy.guardrails.rescue.syntaxes.plain_json import fenced_json
from tests.fakes.arrivals import chunkings, read_syntax, scan

ROW = FORMATS["fenced_json"]
HERMES = find_syntax("hermes")
BARE_JSON = find_syntax("bare_json")
UNOPENED_JSON = find_syntax("unopened_json")
QWEN_CODER = find_syntax("qwen_coder")

PING = '{"name": "ping", "parameters": {"host": "a"}}'
CALL = WrittenCall("ping", {"host": "a"})


def test_an_object_or_a_list_is_read_from_its_first_bracket() -> None:
    assert read_syntax(BARE_JSON, PING) == (Calls((CALL,)), "")
    assert read_syntax(BARE_JSON, f"[{PING}]\n") == (Calls((CALL,)), "")
    assert read_syntax(BARE_JSON, f"{PING}\n{PING}") == (Calls((CALL, CALL)), "")


def test_a_json_answer_is_abandoned_early() -> None:
    result = read_syntax(BARE_JSON, '{"answer": [1, 2, 3]}')
    assert result == (NoCall(Reason.NOT_A_CALL), "[1, 2, 3]}")
    assert read_syntax(BARE_JSON, '{"name": "ping"}')[0] == NoCall(Reason.NOT_A_CALL)
    assert read_syntax(BARE_JSON, "[see above]")[0] == NoCall(Reason.NOT_A_CALL)


def test_json_on_a_separate_line_needs_all_brackets() -> None:
    bare = Calls((CALL,), is_bare=True)
    assert read_syntax(UNOPENED_JSON, f"\n{PING}\n</tool_call>") == (bare, "")
    assert read_syntax(UNOPENED_JSON, f"\n{PING}\n") == (bare, "")
    assert read_syntax(UNOPENED_JSON, f"\n[{PING}]") == (bare, "")
    assert read_syntax(UNOPENED_JSON, f"\n{PING[:-1]}\n")[0] == NoCall(Reason.NOT_A_CALL)
    assert read_syntax(UNOPENED_JSON, '\n{"answer": 1}</tool_call>') == (
        NoCall(Reason.NOT_A_CALL),
        "1}</tool_call>",
    )


FENCED_PING = '{"name": "ping", "parameters": {"host": "```"}}'
FENCED_CALL = WrittenCall("ping", {"host": "```"})


@pytest.mark.parametrize("language", ["", "json", "tool_call"])
def test_a_fence_is_read_up_to_its_end(language: str) -> None:
    result = read_syntax(fenced_json(ROW), f"```{language}\n{FENCED_PING}\n```\nrest")
    assert result == (Calls((FENCED_CALL,)), "rest")


def test_code_fences_may_follow_one_another() -> None:
    result = read_syntax(
        fenced_json(ROW), f"```json\n{FENCED_PING}\n```\n\n```json\n[{FENCED_PING}]\n```"
    )
    assert result == (Calls((FENCED_CALL, FENCED_CALL)), "")


def test_the_last_fence_may_be_unclosed() -> None:
    result = read_syntax(fenced_json(ROW), f"```json\n{FENCED_PING}\n")
    assert result == (Calls((FENCED_CALL,), closed=False), "")


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```",
        "````",
        "``` text",
        '```json\n{"host": "a"}\n```',
        f"```json\n{FENCED_PING}\n```\n```python\nprint(1)\n```",
        f"```json\n{FENCED_PING}\n```\n```json\nnothing\n```",
    ],
)
def test_other_code_is_no_call(text: str) -> None:
    assert read_syntax(fenced_json(ROW), text)[0] == NoCall(Reason.NOT_A_CALL)


def test_a_python_fence_may_contain_calls() -> None:
    result = read_syntax(fenced_json(ROW), '```tool_code\nprint(ping(host="a"))\n```')
    assert result == (Calls((WrittenCall("ping", {"host": "a"}),)), "")
    assert read_syntax(fenced_json(ROW), "```tool_code\nx = 1\n```")[0] == NoCall(Reason.NOT_A_CALL)


GRANITE = marked_json(Format(name="granite", shape="json", marks={"<function_call>": ""}))
MARKED = fenced_json(ROW, (HERMES, QWEN_CODER, GRANITE, BARE_JSON))
TAGGED = "<tool_call><function=ping><parameter=host>```</parameter></function></tool_call>"


@pytest.mark.parametrize("language", ["", "xml", "json", "text"])
@pytest.mark.parametrize("body", [f"<tool_call>{FENCED_PING}</tool_call>", TAGGED])
def test_a_marked_call_may_be_the_entire_content(language: str, body: str) -> None:
    result = read_syntax(MARKED, f"```{language}\n{body}\n```\n")
    assert result == (Calls((FENCED_CALL,)), "")


def test_several_marked_calls_with_leaked_marks_may_be_in_a_fence() -> None:
    text = f"<|im_start|>{TAGGED}\n<tool_call>{FENCED_PING}</tool_call>\n"
    text += f"<function_call>{FENCED_PING}</function_call>"
    assert read_syntax(MARKED, f"```\n{text}\n```") == (Calls((FENCED_CALL,) * 3), "")


@pytest.mark.parametrize(
    "body",
    [
        f"Like this: {TAGGED}",
        f"{TAGGED}\nor so",
        "<tool_call>oh</tool_call>",
        "<s>" * 9 + TAGGED,
        TAGGED * 30,
    ],
)
def test_a_marked_call_next_to_other_text_is_not_the_entire_content(body: str) -> None:
    outcome, rest = read_syntax(MARKED, f"```xml\n{body}\n```")
    assert isinstance(outcome, NoCall) or rest.strip("`\n") or not outcome.closed


@pytest.mark.parametrize("language", ["", "python", "tool_code"])
def test_a_list_of_python_calls_may_be_the_entire_content(language: str) -> None:
    result = read_syntax(fenced_json(ROW), f"```{language}\n[ping(host='```')]\n```")
    assert result == (Calls((FENCED_CALL,)), "")


def test_speculative_readings_in_a_fence_are_not_announced() -> None:
    text = "```<|channel|>commentary to=functions.ping<|constrain|>json<|message|>{>"
    for pieces in chunkings(text):
        assert scan(pieces, SYNTAXES, ["ping"]) == [Prose(text)]
