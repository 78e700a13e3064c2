import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.tool_prompts.history import find_convention
from tests.fakes.arrivals import read_syntax, run
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, read_again, retold

GEMMA_CONVENTION = find_convention("gemma")

BARE_GEMMA = find_syntax("bare_gemma")
BARE_GEMMA_IN_TEXT = find_syntax("bare_gemma_in_text")
GEMMA = find_syntax("gemma")

DESCRIPTION = """You can call these functions:
[
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}},
{"type": "function",
 "function": {"name": "wait"}}%s
]

To call one or several of them, end your reply with a JSON code block, one object for each call:
```json
{"name": "FUNCTION", "parameters": {"PARAMETER": "VALUE"}}
```
You get the results in tool_output code blocks.%s"""


def test_functions_are_described_as_a_list() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = ",\n" + RESPOND.source.decode()
    assert GEMMA_CONVENTION.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert GEMMA_CONVENTION.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_all_calls_are_in_one_code_block() -> None:
    calls = [ToolCall("a", "send", '{"to": "````"}'), ToolCall("b", "wait", "{}")]
    assert GEMMA_CONVENTION.write_calls("Sending.", calls) == (
        'Sending.\n\n```json\n{"name": "send", "parameters": {"to": "\\u0060`\\u0060`"}}\n'
        '{"name": "wait", "parameters": {}}\n```'
    )


def test_a_result_is_in_a_code_block() -> None:
    assert GEMMA_CONVENTION.write_result("send", "a", "a\n```\nb") == (
        '```tool_output\n{"name": "send", "content": "a\\n\\u0060``\\nb"}\n```'
    )


def test_the_other_forms_that_google_documents_are_read_too() -> None:
    for text in (
        '{"name": "send", "parameters": {"to": "x"}}',
        '[send(to="x")]',
        '```tool_code\nprint(send(to="x"))\n```',
    ):
        (call,) = read_again(GEMMA_CONVENTION, text, ["send"])
        assert (call.name, call.arguments) == ("send", {"to": "x"})


def test_a_call_of_a_tool_that_is_not_offered_is_an_answer_in_json() -> None:
    text = GEMMA_CONVENTION.write_calls("", [ToolCall("a", "send", "{}")])
    assert read_again(GEMMA_CONVENTION, text, ["wait"]) == []
    assert retold(GEMMA_CONVENTION, ToolCall("a", "send", "{}")) != []


NOTE = WrittenCall("note", {"text": 'say "hi"', "n": 2})
BODY = 'note{text:<|"|>say "hi"<|"|>,n:2}'


@pytest.mark.parametrize(
    "text",
    [
        f"<|tool_call>call:{BODY}<tool_call|>",
        f"<tool_call> call:{BODY}\n</tool_call>",
        '<start_function_call>call:note{text:<escape>say "hi"<escape>,n:2}<end_function_call>',
        "<|tool_call>call:note(text='say \"hi\"', n=2)<tool_call|>",
        f"<|tool_call>call:{BODY[:-1]}<tool_call|>",
    ],
)
def test_a_call_is_between_marks(text: str) -> None:
    assert read_syntax(GEMMA, f"{text}x") == (Calls((NOTE,)), "x")


def test_marks_may_be_missing() -> None:
    opened = Calls((NOTE,), closed=False)
    assert read_syntax(GEMMA, f"<|tool_call>call:{BODY}")[0] == opened
    assert read_syntax(BARE_GEMMA, f"call:{BODY}\n") == (opened, "")
    assert read_syntax(BARE_GEMMA_IN_TEXT, f"\ncall:{BODY}<tool_call|>")[0] == Calls((NOTE,))


def test_the_keyword_before_the_name_may_be_missing() -> None:
    expected = Calls((WrittenCall("f", {"a": "x"}),))
    assert read_syntax(GEMMA, '<|tool_call>f{a:<|"|>x<|"|>}<tool_call|>')[0] == expected
    assert read_syntax(GEMMA, '<|tool_call>call: f{a:<|"|>x<|"|>}<tool_call|>')[0] == expected


@pytest.mark.parametrize("word", ["call:", ":", "call :", " : ", "call: "])
def test_the_keyword_and_the_space_around_its_colon_may_vary(word: str) -> None:
    expected = Calls((WrittenCall("f", {"a": "x"}),))
    assert read_syntax(GEMMA, f'<|tool_call>{word}f{{a:<|"|>x<|"|>}}<tool_call|>')[0] == expected


def test_a_tool_may_be_named_like_the_keyword() -> None:
    expected = Calls((WrittenCall("callback", {}),))
    assert read_syntax(GEMMA, "<|tool_call>callback{}<tool_call|>")[0] == expected


def test_several_calls_may_share_one_pair_of_marks() -> None:
    both = Calls((NOTE, WrittenCall("f", {})))
    assert read_syntax(GEMMA, f"<|tool_call>call:{BODY}call:f{{}}<tool_call|> x") == (both, " x")
    assert read_syntax(GEMMA, f"<|tool_call>call:{BODY}\ncall:f{{}}\n<tool_call|>")[0] == both
    open_row = read_syntax(GEMMA, f"<|tool_call>call:{BODY}call:f{{}}")[0]
    assert open_row == Calls(both.calls, closed=False)
    broken = read_syntax(GEMMA, f"<|tool_call>call:{BODY}call:f<tool_call|>")[0]
    assert isinstance(broken, NoCall)
    following = "call:f{}"
    assert read_syntax(GEMMA, f"<|tool_call>call:{BODY}<tool_call|>{following}")[1] == following


def test_the_number_of_calls_between_two_marks_is_limited() -> None:
    text = f"call:f{{}}{'call:f{}' * 200}"
    cursor = Cursor(text, is_finished=True)
    calls = run(cursor, GEMMA.read(cursor, "<|tool_call>"), [])[0]
    assert isinstance(calls, Calls)
    assert len(calls.calls) == MOST_CALLS + 1


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('it\'s "so", he said', 'it\'s "so", he said'),
        ("f(a, b) and c", "f(a, b) and c"),
        ("at 5, 10:30", "at 5, 10:30"),
        ("", ""),
        ("007", "007"),
        ("7", 7),
        ("null", None),
    ],
)
def test_a_value_without_delimiters_ends_where_the_next_key_begins(
    raw: str, value: JsonValue
) -> None:
    call = WrittenCall("f", {"a": value, "b": "z"})
    text = f'<|tool_call>call:f{{a:{raw},b:<|"|>z<|"|>}}<tool_call|>'
    assert read_syntax(GEMMA, text)[0] == Calls((call,))


def test_an_item_without_delimiters_has_no_comma() -> None:
    call = WrittenCall("f", {"a": ["it's", "so", 1]})
    assert read_syntax(GEMMA, "<|tool_call>call:f{a:[it's, so, 1]}<tool_call|>")[0] == Calls(
        (call,)
    )
    broken = read_syntax(GEMMA, "<|tool_call>call:f{a:[it's,,so]}<tool_call|>")[0]
    assert broken == NoCall(Reason.BROKEN)


def test_the_last_delimiter_may_be_missing_at_the_end_of_the_reply() -> None:
    call = Calls((WrittenCall("f", {"n": 1, "a": 'x {y} "z"'}),))
    text = '<|tool_call>call:f{n:1,a:<|"|>x {y} "z"}<tool_call|>'
    assert read_syntax(GEMMA, text)[0] == call
    assert read_syntax(GEMMA, f"{text}\n")[0] == call
    data = '<|tool_call>call:f{a:<|"|>x}<tool_call|> y<|"|>}<tool_call|>'
    within = WrittenCall("f", {"a": "x}<tool_call|> y"})
    assert read_syntax(GEMMA, data)[0] == Calls((within,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # other text is no call
        ("<|tool_call> marks", Reason.NOT_A_CALL),
        ("<|tool_call>call:", Reason.NOT_A_CALL),
        ("<|tool_call>call:note", Reason.NOT_A_CALL),
        ('<|tool_call>call:note{text:<|"|>cut', Reason.BROKEN),
        ("<|tool_call>call:note{n:2", Reason.BROKEN),
        ('<|tool_call>call:note{text:<|"|>whole<|"|>', Reason.BROKEN),
        ("<|tool_call>call:note(2)", Reason.BROKEN),
        # an ambiguous text has no reading
        ('<|tool_call>call:f{a:<|"|>x}<tool_call|> and so on', Reason.BROKEN),
        ('<|tool_call>call:f{a:<|"|>x<tool_call|>', Reason.BROKEN),
        ('<|tool_call>call:f{a:{b:<|"|>x}}<tool_call|>', Reason.BROKEN),
        ('<|tool_call>call:f{a:[<|"|>x]}<tool_call|>', Reason.BROKEN),
        ('<|tool_call>call:f{a:<|"|>{"name": "g"}}<tool_call|>', Reason.BROKEN),
        (
            '<|tool_call>call:f{a:<|"|>x}<tool_call|><|tool_call>call:g{a:<|"|>y<|"|>}<tool_call|>',
            Reason.BROKEN,
        ),
        ("<|tool_call>call:f{n:1,a:some words<tool_call|>", Reason.BROKEN),
        ("<|tool_call>call:f{a:[some words<tool_call|>", Reason.BROKEN),
        ("<|tool_call>call:f{a:an { odd bracket}<tool_call|>", Reason.BROKEN),
    ],
)
def test_other_text_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(GEMMA, text)[0] == NoCall(reason)


def test_a_single_text_may_extend_to_the_mark() -> None:
    content = "# Title\n\nSome `words`, and more.\nA line"
    call = WrittenCall("write", {"content": content})
    text = f"<|tool_call>call:write{{content:{content}<tool_call|>"
    assert read_syntax(GEMMA, text)[0] == Calls((call,))
