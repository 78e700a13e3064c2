import pytest

from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.tag_values import (
    LineEnds,
    is_pair_text,
    is_surplus_end,
    unescape_entities,
)
from tests.fakes.arrivals import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # every special character is escaped
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("Tom &amp; Jerry", "Tom & Jerry"),
        ("say &quot;hi&quot;, it&#39;s", 'say "hi", it\'s'),
        # a special character is not escaped, or an entity is unknown
        ("plain", None),
        ("a & b", None),
        ("<b>Tom &amp; Jerry</b>", None),
        ("a && b &lt; c", None),
        ("a &nbsp; b &amp; c", None),
        ('say "hi" &quot;', None),
        ("it's &apos;", None),
    ],
)
def test_only_a_text_in_which_every_special_character_is_escaped_is_unescaped(
    text: str, expected: str | None
) -> None:
    assert unescape_entities(text) == (text if expected is None else expected)


def trim(*texts: str, has_lines: bool = True) -> list[object]:
    """Trim the values of one call and return them."""
    lines = LineEnds(has_lines=has_lines)
    keys = ["k" * (index + 1) for index in range(len(texts))]
    arguments: JsonObject = {
        key: lines.trim(key, text) for key, text in zip(keys, texts, strict=True)
    }
    lines.restore(arguments)
    return list(arguments.values())


def test_a_single_line_end_is_part_of_the_value_in_a_format_without_lines() -> None:
    assert trim("\nx\n", "x\n", "\nx", has_lines=False) == ["x", "x\n", "\nx"]


def test_restoring_skips_a_value_that_was_changed_after_trimming() -> None:
    lines = LineEnds(has_lines=True)
    assert (lines.trim("a", "&lt;\n"), lines.trim("b", "y")) == ("&lt;", "y")
    arguments: JsonObject = {"a": "<", "b": "y"}
    lines.restore(arguments)
    assert arguments == {"a": "<", "b": "y"}


@pytest.mark.parametrize(
    ("text", "is_text"),
    [
        ("</c>", False),
        ("</c> ", False),
        ("</c>\nand on</p></c>", False),
        ("</c><c>", False),
        ("</c> and on", False),
        ("</c> and on</p> </c>", True),
        ("</c> and on</p>\n</c>\n", True),
        ("</c> and <tool_call>x</p></c>", False),
        (f"</c> and {'on ' * 100}</p></c>", False),
    ],
)
def test_two_closing_marks_are_text_if_both_occur_again_on_the_line(
    text: str, is_text: bool
) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return is_pair_text(cursor, "</p>", "</c>")

    assert read(start, text) == (is_text, text)


@pytest.mark.parametrize(
    ("text", "is_more"),
    [("", False), ("<p>1</p>", False), ("1</p>", True), ("<p>1</p> 2</p>", True)],
)
def test_a_closing_mark_is_surplus_if_closing_marks_outnumber_opening_marks(
    text: str, is_more: bool
) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return is_surplus_end(cursor, "<p>", "</p>")

    assert read(start, text) == (is_more, text)
