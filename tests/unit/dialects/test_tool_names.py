import pytest

from proxy.dialects.tool_names import check_name, check_new, check_offered
from proxy.errors import InvalidRequest


@pytest.mark.parametrize("name", ["", " ", "a\n", "a\u200b"])
def test_a_name_can_be_seen(name: str) -> None:
    check_name("look", "tools.0.name")
    with pytest.raises(InvalidRequest) as refused:
        check_name(name, "tools.0.name")
    assert refused.value.param == "tools.0.name"


def test_two_tools_have_two_names() -> None:
    check_new("look", ["find"], "name")
    with pytest.raises(InvalidRequest, match="Two tools are named 'find'"):
        check_new("find", ["find"], "name")


@pytest.mark.parametrize(("offered", "known"), [(["look", "find"], "look, find"), ([], "none")])
def test_only_what_is_offered_can_be_chosen(offered: list[str], known: str) -> None:
    check_offered("look", ["look"], "tool_choice")
    with pytest.raises(InvalidRequest, match=f"no tool 'read' among the offered ones: {known}."):
        check_offered("read", offered, "tool_choice")
