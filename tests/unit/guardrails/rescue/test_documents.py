import pytest

from proxy.guardrails.rescue.documents import Document
from tests.fakes.arrivals import chunkings, is_linear


def after(text: str) -> tuple[bool, bool]:
    """Return whether it is known that a text is a document, and whether it is over."""
    results = set()
    for pieces in chunkings(text):
        document = Document()
        for piece in pieces:
            document.pass_text(piece)
        results.add((document.is_known, document.is_over))
    assert len(results) == 1
    return results.pop()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"a": "b {", "c": [1, -2.5e3, true, None, ...], } and more',
        "{'a': \"it's\"}",
        '{"a": "\\"}"}',
        '[{"a": []}, "b"]\n',
        '{\n  "a": {"b": "two\nlines"}\n}',
    ],
)
def test_a_document_ends_with_its_last_bracket(text: str) -> None:
    assert after(text) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "b"',
        '{"a": "b}',
        '{"a": "\\',
        '{"a": "b" c}',
        '{"a": "b" "c"}',
        '{"a": b}',
        '{"a": [1}',
        '{"a": 1 2}',
        '{"a": <b>}',
        '{"a": ' + "1" * 2_000 + "}",
    ],
)
def test_a_document_that_breaks_or_goes_on_has_no_end(text: str) -> None:
    assert after(text) == (True, False)
    assert after(f"{text}}}]") == (True, text in ('{"a": "b"',))


@pytest.mark.parametrize(
    "text",
    [
        "{x} is",
        "{}",
        "[1] foo",
        "[link](to)",
        '{"x"} and',
        "{{",
        '{"a\nb": 1}',
        "[" * 70,
        "{:",
        "]",
    ],
)
def test_other_brackets_begin_no_document(text: str) -> None:
    assert after(text) == (False, True)


def test_nothing_is_known_before_the_first_key_ends() -> None:
    assert after('{"a"') == (False, False)
    assert after('["a", "b"') == (False, False)


@pytest.mark.parametrize("unit", ['"a": ', '{"a":', "1", '"', "\\", "[", "a "])
def test_work_is_linear(unit: str) -> None:
    def work(text: str) -> None:
        document = Document()
        for start in range(0, len(text), 16):
            document.pass_text(text[start : start + 16])

    assert is_linear(work, lambda size: '{"a": ' + unit * (size // len(unit)), 50_000)
