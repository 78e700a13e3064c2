import pytest

from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.syntaxes.nested_tags import read_nested
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.written import Unreadable
from tests.fakes.arrivals import is_linear, read

END = "@</call>"


def nested(text: str) -> tuple[JsonValue | Unreadable, str]:
    def start(cursor: Cursor) -> Waiting[JsonValue | Unreadable]:
        return read_nested(cursor, "@", "a", END)

    return read(start, text)


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
    list(read_nested(Cursor(text, is_finished=True), "@", "a", END))
