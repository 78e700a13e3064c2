import pytest

from proxy.guardrails.rescue.values.comments import pass_comments
from tests.fakes.arrivals import read


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("// one\n x", "x"),
        ("# one\n\n# two\n/* three\n */ x", "x"),
        ("/* one */x", "x"),
        ("/***/ // two\nx", "x"),
        ("# one", ""),
        ("/* one", ""),
    ],
)
def test_comments_and_the_space_behind_them_are_passed(text: str, rest: str) -> None:
    def passes_all(text: str) -> tuple[bool, str]:
        passed, left = read(pass_comments, text)
        return (passed, left) if left == rest else passes_all(left)

    assert passes_all(text) == (True, rest)


@pytest.mark.parametrize("text", ["/ x", "x", "", "/"])
def test_other_text_is_not_passed(text: str) -> None:
    assert read(pass_comments, text) == (False, text)
