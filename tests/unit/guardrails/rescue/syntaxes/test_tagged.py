import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import RefusedText
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.syntaxes.tagged import Element, read_nested, tagged_syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.scalars import Unreadable
from tests.fakes.arrivals import attempt, is_linear, outcome, read_syntax, run, scan

END = "@</call>"


def nested(text: str) -> tuple[JsonValue | Unreadable | NoCall, str]:
    def start(cursor: Cursor) -> Waiting[JsonValue]:
        return read_nested(cursor, "@", "a", END)

    return attempt(start, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x < y @</a>", "x < y "),
        ("@</a>", ""),
        ("@<b>1@</b>@</a>", {"b": "1"}),
        ("\n@<b>1@</b>\n@<c>@<d>2@</d>@</c>@</a>", {"b": "1", "c": {"d": "2"}}),
        ("@<b>1@</b>@<b>2@</b>@<b>3@</b>@</a>", {"b": ["1", "2", "3"]}),
    ],
)
def test_elements_are_objects_lists_and_text(text: str, value: JsonValue) -> None:
    assert nested(f"{text} x") == (value, " x")


def test_the_closing_tag_of_a_text_may_be_missing() -> None:
    assert nested(f"x{END}") == ("x", END)
    assert nested(f"x@<b>1@</b>{END}") == ("x", f"@<b>1@</b>{END}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x@",
        "@<b>1@</c>@</a>",
        "@<b>1@</b>x@</a>",
        "@<b>1@</b>",
        f"@<b>1{END}",
        "@<>1@</>@</a>",
        "@<b",
        "@<b>@<c>1",
        "@<tool_call>1@</tool_call>@</a>",
        "@<b>" * 70 + "@</b>" * 70 + "@</a>",
    ],
)
def test_tags_that_do_not_fit_are_no_value(text: str) -> None:
    assert isinstance(nested(text)[0], Unreadable)


def test_work_is_linear() -> None:
    assert is_linear(lambda text: nested_whole(text), lambda size: "@<b>1@</b>" * size, 2_000)


def nested_whole(text: str) -> None:
    list(outcome(read_nested(Cursor(text, is_finished=True), "@", "a", END)))


TAGS = tagged_syntax("tags", (Element("<c ", "</c>", ("<p ",), "</p>"),), {"<w>": "</w>"})


@pytest.mark.parametrize("head", ["f", '"f"', "'f'", ' "f" ', 'f id="1" x:y="2"'])
def test_a_name_may_be_quoted_and_have_attributes_behind_it(head: str) -> None:
    assert read_syntax(TAGS, f"<c {head}></c>") == (Calls((WrittenCall("f", {}),)), "")


def test_character_data_is_taken_literally() -> None:
    text = "<c f><p a><![CDATA[\n<p b></p>]]></p></c>"
    assert read_syntax(TAGS, text)[0] == Calls((WrittenCall("f", {"a": "\n<p b></p>"}),))
    broken = "<c f><p a><![CDATA[x]]> y</p></c>"
    assert read_syntax(TAGS, broken)[0] == NoCall(Reason.BROKEN)


def test_json_is_as_good_as_parameters_only_if_it_is_an_object_and_whole() -> None:
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1</c>')[0] == NoCall(Reason.BROKEN)
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1}')[0] == NoCall(Reason.BROKEN)


def test_a_mark_too_few_and_one_too_many_make_the_call_unreadable() -> None:
    text = "<c f><p a>1<p b>2</p> 3</p></c>"
    assert read_syntax(TAGS, text)[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    "unit", ["<c ", "<w>", "<c f><p a>", "</p>", "</p> ", "<p a>1</p>", "</c>"]
)
def test_work_is_linear_for_floods(unit: str) -> None:
    def scan_whole(text: str) -> None:
        scan([text], (TAGS,))

    assert is_linear(scan_whole, lambda size: "<c f><p a>" + unit * (size // 4), 8_000)


def test_there_is_a_limit_to_the_number_of_arguments() -> None:
    pairs = "".join(f"<p a{number}>1</p>" for number in range(101))
    findings = find_calls(f"<c f>{pairs}</c>", (TAGS,), ())
    assert findings[0] == RefusedText(Reason.BROKEN)
    same = find_calls(f"<c f>{'<p a>1</p>' * 101}</c>", (TAGS,), ())
    assert same[0] == RefusedText(Reason.BROKEN)


def test_there_is_a_limit_to_the_number_of_marks_in_a_value() -> None:
    def found(count: int) -> Calls | NoCall | Unreadable:
        cursor = Cursor(f"f><p a>x{'</p> y' * count}</p></c>", is_finished=True)
        return run(cursor, outcome(TAGS.read(cursor, "<c ")), [])[0]

    assert found(900) == Calls((WrittenCall("f", {"a": "x" + "</p> y" * 900}),))
    assert found(1_100) == NoCall(Reason.BROKEN)
