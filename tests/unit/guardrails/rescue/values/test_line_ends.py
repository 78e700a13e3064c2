import pytest

from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.values.line_ends import LineEnds


def trimmed(*texts: str, has_lines: bool = True) -> list[object]:
    """Trim the values of one call and give back what has to be."""
    lines = LineEnds(has_lines=has_lines)
    keys = ["k" * (place + 1) for place in range(len(texts))]
    arguments: JsonObject = {
        key: lines.trimmed(key, text) for key, text in zip(keys, texts, strict=True)
    }
    lines.restore(arguments)
    return list(arguments.values())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x", "x"),
        ("\nx\n", "x"),
        ("\n\nx\n\n", "\nx\n"),
        ("\nx", "x"),
        ("x\n", "x"),
        ("x\ny\n", "x\ny\n"),
        ("", ""),
        ("\n", ""),
        ("x</k>", "x"),
        ("<k>x</k>", "<k>x</k>"),
    ],
)
def test_line_ends_at_the_marks_belong_to_the_layout(text: str, value: str) -> None:
    assert trimmed(text) == [value]


def test_a_value_right_behind_its_tag_keeps_its_line_end_where_another_stands_so_too() -> None:
    assert trimmed("a.py", "x\n") == ["a.py", "x\n"]
    assert trimmed("x\n", "a.py") == ["x\n", "a.py"]
    assert trimmed("\na.py\n", "x\n") == ["a.py", "x"]


def test_elsewhere_a_line_end_belongs_to_the_value_unless_there_are_two() -> None:
    assert trimmed("\nx\n", "x\n", "\nx", has_lines=False) == ["x", "x\n", "\nx"]


def test_a_value_that_was_made_another_is_left_alone() -> None:
    lines = LineEnds(has_lines=True)
    assert (lines.trimmed("a", "&lt;\n"), lines.trimmed("b", "y")) == ("&lt;", "y")
    arguments: JsonObject = {"a": "<", "b": "y"}
    lines.restore(arguments)
    assert arguments == {"a": "<", "b": "y"}
