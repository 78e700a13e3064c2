import re
from pathlib import Path

import pytest

import proxy
from proxy.conversation.possessive import possessive

OLD, FIXED = (3, 11, 2), (3, 11, 5)
SOURCES = Path(proxy.__file__).parent
GROUP = re.compile(r"\)(?:[*+?]|\{\{?[^\s{}]*\}?\})\+")


@pytest.mark.parametrize(
    ("pattern", "rewritten"),
    [
        (r"(?:ab?c)++", r"(?>(?:ab?c)+)"),
        (r"x(a|b){2,5}+y?", r"x(?>(a|b){2,5})y?"),
        (r"(?:(?P<last>a)?+b)*+", r"(?>(?:(?>(?P<last>a)?)b)*)"),
        (r"[()]++\)++(?:[^])(]|\])?+", r"[()]++\)++(?>(?:[^])(]|\])?)"),
        (r"(?:a)+(?:b)*?[a-z]{1,3}+", r"(?:a)+(?:b)*?[a-z]{1,3}+"),
    ],
)
def test_possessive_groups_become_atomic_in_old_python_versions(
    pattern: str, rewritten: str
) -> None:
    assert possessive(pattern, version=OLD) == rewritten
    assert possessive(pattern, version=FIXED) == pattern


@pytest.mark.parametrize("version", [OLD, FIXED])
def test_a_partial_repetition_of_a_possessive_group_is_not_matched(
    version: tuple[int, ...],
) -> None:
    if version == FIXED and re.fullmatch(r"(?:ab?c)++a", "aca") is None:
        pytest.skip("this Python matches possessive groups incorrectly")
    match = re.match(possessive(r"(?:ab?c)++", version=version), "acabcab")
    assert match is not None
    assert match[0] == "acabc"


def test_every_module_with_a_possessive_group_calls_possessive() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    having = {path for path, text in texts.items() if GROUP.search(text)}
    assert len(having) > 5
    assert [path for path in having if "possessive import possessive" not in texts[path]] == [
        SOURCES / "conversation" / "possessive.py"
    ]
