import pytest

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.doubts import Doubt, doubt_about, ends_behind, is_last
from tests.fakes.arrivals import read


@pytest.mark.parametrize(
    ("written", "quotes", "doubt"),
    [
        ('say "no" and "yes"', '""', Doubt.PAIRED),
        ('x = y["k"]', '""', Doubt.PAIRED),
        ("it's", "''", Doubt.PAIRED),
        ("f('x'), it's", "''", Doubt.PAIRED),
        ("e “f” g", "“”", Doubt.PAIRED),
        ('a 5" disk', '""', Doubt.UNPAIRED),
        ('3" by 5" and', '""', Doubt.UNPAIRED),
        (r'an escaped \" and a 5" disk', '""', Doubt.UNPAIRED),
        ('{"a": "b', '""', Doubt.TORN),
        ('one"\n{"second": "two', '""', Doubt.TORN),
        ('see ["x", "y', '""', Doubt.TORN),
        ("one'][f(a='two", "''", Doubt.TORN),
        ('a "b" <tool_call>', '""', Doubt.TORN),
        ('{"name": "f"}', '""', Doubt.TORN),
    ],
)
def test_marks_that_come_in_pairs_are_no_end(written: str, quotes: str, doubt: Doubt) -> None:
    assert doubt_about(written, quotes[0], quotes[1]) is doubt


@pytest.mark.parametrize(
    ("behind", "is_good", "doubt"),
    [
        ("", True, Doubt.UNPAIRED),
        (" \n ", True, Doubt.UNPAIRED),
        ("\n</tool_call>", True, Doubt.UNPAIRED),
        ("}]", True, Doubt.UNPAIRED),
        ("</x>", True, Doubt.UNPAIRED),
        ("<|im_end|>", True, Doubt.UNPAIRED),
        ("</b>", False, Doubt.UNPAIRED),
        ('"}', False, Doubt.UNPAIRED),
        (" so", False, Doubt.UNPAIRED),
        ("\nSo it is, and a good many words more", False, Doubt.UNPAIRED),
        ("", True, Doubt.PAIRED),
        ("\nso", True, Doubt.PAIRED),
        (", f()", True, Doubt.PAIRED),
        (" so", False, Doubt.PAIRED),
        (' "}', False, Doubt.PAIRED),
    ],
)
def test_what_stands_behind_decides_about_a_doubtful_value(
    behind: str, is_good: bool, doubt: Doubt
) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return ends_behind(cursor, doubt, ("</x>",))

    assert read(start, behind) == (is_good, behind)


@pytest.mark.parametrize(
    ("text", "is_end"), [("</x>", True), ("</x> \n", True), ("</x> a", False), ("</x>" * 9, False)]
)
def test_a_mark_is_the_last_if_only_space_follows(text: str, is_end: bool) -> None:
    assert read(lambda cursor: is_last(cursor, "</x>"), text) == (is_end, text)


def test_more_space_than_can_be_seen_is_no_end() -> None:
    assert not read(lambda cursor: is_last(cursor, "</x>"), f"</x>{' ' * 64}")[0]
