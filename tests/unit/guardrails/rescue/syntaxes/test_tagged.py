import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Refused
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.arrivals import is_linear, read_syntax, run, scan

TAGS = Tagged("tags", (Element("<c ", "</c>", ("<p ",), "</p>"),), {"<w>": "</w>"})


@pytest.mark.parametrize("head", ["f", '"f"', "'f'", ' "f" ', 'f id="1" x:y="2"'])
def test_a_name_may_be_quoted_and_have_attributes_behind_it(head: str) -> None:
    assert read_syntax(TAGS, f"<c {head}></c>") == (Calls((WrittenCall("f", {}),)), "")


def test_character_data_is_taken_literally() -> None:
    text = "<c f><p a><![CDATA[\n<p b></p>]]></p></c>"
    assert read_syntax(TAGS, text)[0] == Calls((WrittenCall("f", {"a": "\n<p b></p>"}),))
    broken = "<c f><p a><![CDATA[x]]> y</p></c>"
    assert read_syntax(TAGS, broken)[0] == NotACall(Reason.BROKEN)


def test_json_is_as_good_as_parameters_only_if_it_is_an_object_and_whole() -> None:
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1</c>')[0] == NotACall(Reason.BROKEN)
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1}')[0] == NotACall(Reason.BROKEN)


def test_a_mark_too_few_and_one_too_many_make_the_call_unreadable() -> None:
    text = "<c f><p a>1<p b>2</p> 3</p></c>"
    assert read_syntax(TAGS, text)[0] == NotACall(Reason.BROKEN)


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
    assert findings[0] == Refused(Reason.BROKEN)
    same = find_calls(f"<c f>{'<p a>1</p>' * 101}</c>", (TAGS,), ())
    assert same[0] == Refused(Reason.BROKEN)


def test_there_is_a_limit_to_the_number_of_marks_in_a_value() -> None:
    def found(count: int) -> Calls | NotACall:
        cursor = Cursor(f"f><p a>x{'</p> y' * count}</p></c>", is_finished=True)
        return run(cursor, TAGS.read(cursor, "<c "), [])[0]

    assert found(900) == Calls((WrittenCall("f", {"a": "x" + "</p> y" * 900}),))
    assert found(1_100) == NotACall(Reason.BROKEN)
