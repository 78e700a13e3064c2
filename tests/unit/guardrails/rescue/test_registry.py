import pytest

from proxy.guardrails.rescue.registry import SYNTAXES, in_order


def test_every_syntax_has_a_name_of_its_own_and_openings() -> None:
    assert len({syntax.name for syntax in SYNTAXES}) == len(SYNTAXES)
    assert all(syntax.openings and all(syntax.openings) for syntax in SYNTAXES)


def test_a_profiles_syntaxes_come_first_and_the_others_keep_their_order() -> None:
    names = [syntax.name for syntax in in_order(["mistral", "bare_json"])]
    assert names == ["mistral", "bare_json", "hermes", "qwen_coder", "fenced_json"]
    assert in_order([]) == SYNTAXES


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="klingon"):
        in_order(["klingon"])
