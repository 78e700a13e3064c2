import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import RefusedText
from proxy.guardrails.rescue.formats import Element, Format
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.syntaxes.tagged import read_nested, tagged
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.scalars import Unreadable
from tests.fakes.arrivals import attempt, is_linear, outcome, run, scan

END = "@</call>"


def read_element(text: str) -> tuple[JsonValue | Unreadable | NoCall, str]:
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
def test_nested_elements_are_read_as_objects_or_lists_or_text(text: str, value: JsonValue) -> None:
    assert read_element(f"{text} x") == (value, " x")


def test_an_element_without_a_closing_tag_ends_at_the_end_mark() -> None:
    assert read_element(f"x{END}") == ("x", END)
    assert read_element(f"x@<b>1@</b>{END}") == ("x", f"@<b>1@</b>{END}")


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
def test_unmatched_tags_are_refused(text: str) -> None:
    assert isinstance(read_element(text)[0], Unreadable)


def test_reading_nested_elements_takes_linear_time() -> None:
    assert is_linear(
        lambda text: read_complete_element(text), lambda size: "@<b>1@</b>" * size, 2_000
    )


def read_complete_element(text: str) -> None:
    list(outcome(read_nested(Cursor(text, is_finished=True), "@", "a", END)))


TAGS = tagged(
    Format(
        name="tags",
        shape="tagged",
        marks={"<w>": "</w>"},
        elements=(Element("<c ", "</c>", {"<p ": "</p>"}),),
    )
)


@pytest.mark.parametrize(
    "unit", ["<c ", "<w>", "<c f><p a>", "</p>", "</p> ", "<p a>1</p>", "</c>"]
)
def test_scanning_a_flood_of_tags_takes_linear_time(unit: str) -> None:
    def scan_whole(text: str) -> None:
        scan([text], (TAGS,))

    assert is_linear(scan_whole, lambda size: "<c f><p a>" + unit * (size // 4), 8_000)


def test_a_call_with_more_than_100_arguments_is_refused() -> None:
    pairs = "".join(f"<p a{number}>1</p>" for number in range(101))
    findings = find_calls(f"<c f>{pairs}</c>", (TAGS,), ())
    assert findings[0] == RefusedText(Reason.BROKEN)
    same = find_calls(f"<c f>{'<p a>1</p>' * 101}</c>", (TAGS,), ())
    assert same[0] == RefusedText(Reason.BROKEN)


def test_a_value_with_too_many_closing_marks_is_refused() -> None:
    def read_arguments(count: int) -> Calls | NoCall | Unreadable:
        cursor = Cursor(f"f><p a>x{'</p> y' * count}</p></c>", is_finished=True)
        return run(cursor, outcome(TAGS.read(cursor, "<c ")), [])[0]

    assert read_arguments(900) == Calls((WrittenCall("f", {"a": "x" + "</p> y" * 900}),))
    assert read_arguments(1_100) == NoCall(Reason.BROKEN)
