import pytest

from proxy.guardrails.rescue.halves import ends_here, is_half_closer
from tests.fakes.arrivals import read


@pytest.mark.parametrize("text", ["", "</", "</tool_ca", "</function", "<tool_call|"])
def test_a_text_may_end_within_a_closing_mark(text: str) -> None:
    assert read(ends_here, text) == (True, text)


@pytest.mark.parametrize("text", ["<", "x", "</x", "</tool_call>", "</tool_call> x", "</ ", " </"])
def test_other_texts_do_not_end_here(text: str) -> None:
    assert read(ends_here, text) == (False, text)


def test_a_whole_mark_is_no_half() -> None:
    assert is_half_closer("</tool_call")
    assert not is_half_closer("</tool_call>")
