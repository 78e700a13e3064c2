import pytest

from proxy.conversation.tools import WantedTools
from proxy.errors import InvalidRequest, ToolServerUnavailable, ToolsNotAllowed
from proxy.mcp.offer import OfferPolicy, ToolOffer
from tests.fakes.tool_servers import FakeSource, served

SEARCH = (served("find", "search"), served("s_open", "search", "open"))
FILES = (served("read", "files"), served("find", "files"))
SOURCE = FakeSource({"search": SEARCH, "files": FILES, "late": None, "empty": ()})
OWN = (served("write", "").tool,)
ASKED = ToolOffer(OfferPolicy(), SOURCE)
HOSTED = OfferPolicy(
    hosted={"web_search": ("search", "find"), "slow": ("late", "x"), "new": ("unstarted", "x")}
)


def asks(server: str, *allowed: str) -> WantedTools:
    return WantedTools("tools.0", server, allowed or None)


def names(offer: ToolOffer, *wanted: WantedTools, owner: str = "", own: bool = True) -> list[str]:
    found = offer.tools_for(OWN if own else (), wanted, owner)
    return [one.tool.name for one in found]


def test_who_does_not_ask_gets_nothing() -> None:
    assert names(ASKED) == []
    assert names(ASKED, own=False) == []


def test_who_asks_gets_what_the_server_offers_in_the_order_of_the_settings() -> None:
    assert names(ASKED, asks("search")) == ["find", "s_open"]
    assert names(ASKED, asks("files", "read"), asks("search", "open")) == ["s_open", "read"]
    assert names(ASKED, asks("search", "s_open")) == ["s_open"]


def test_of_two_tools_of_one_name_it_is_that_of_the_server_that_was_asked_for() -> None:
    for policy in (OfferPolicy(), OfferPolicy("always")):
        found = ToolOffer(policy, SOURCE).tools_for((), [asks("files")], "")
        assert FILES[1] in found
        assert SEARCH[0] not in found
    both = ASKED.tools_for((), [asks("files", "find"), asks("search", "find")], "")
    assert both == (SEARCH[0],)


def test_toolless_is_for_those_who_bring_no_tools_and_ask_for_none() -> None:
    offer = ToolOffer(OfferPolicy("toolless"), SOURCE)
    assert names(offer, own=False) == ["find", "s_open", "read"]
    assert names(offer) == []
    assert names(offer, asks("files", "read"), own=False) == ["read"]


def test_always_is_for_all_and_adds_to_the_clients_tools() -> None:
    offer = ToolOffer(OfferPolicy("always"), SOURCE)
    assert names(offer) == ["find", "s_open", "read"]
    assert names(offer, asks("search")) == ["find", "s_open", "read"]
    assert names(offer, asks("files")) == ["s_open", "read", "find"]


def test_a_tool_of_the_clients_wins_over_one_of_the_same_name() -> None:
    found = ASKED.tools_for([served("find", "").tool], [asks("search")], "")
    assert [one.tool.name for one in found] == ["s_open"]


def test_a_hosted_tool_is_done_by_the_tool_that_the_operator_named() -> None:
    assert names(ToolOffer(HOSTED, SOURCE), WantedTools("tools.0", kind="web_search")) == ["find"]


def test_who_only_declares_a_hosted_tool_does_without_while_its_server_is_away() -> None:
    for kind in ("slow", "new"):
        assert names(ToolOffer(HOSTED, SOURCE), WantedTools("tools.0", kind=kind)) == []


@pytest.mark.parametrize(
    ("wanted", "param", "words"),
    [
        (asks("other"), "tools.0.server_label", "there are: search, files"),
        (asks("empty"), "tools.0.server_label", "Nothing of the tool server"),
        (asks("search", "find", "gone"), "tools.0.allowed_tools.1", "offers no tool 'gone'"),
    ],
)
def test_what_there_is_not_is_refused(wanted: WantedTools, param: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as told:
        names(ASKED, wanted)
    assert told.value.param == param


def test_a_server_that_is_not_there_is_unavailable_to_those_who_name_it() -> None:
    with pytest.raises(ToolServerUnavailable, match="'late' is not available"):
        names(ASKED, asks("late"))
    assert names(ToolOffer(OfferPolicy("always"), SOURCE)) == ["find", "s_open", "read"]


def test_tools_are_for_their_owners_only() -> None:
    policy = OfferPolicy("always", frozenset({"me"}), HOSTED.hosted)
    offer = ToolOffer(policy, SOURCE)
    assert names(offer, owner="me") == ["find", "s_open", "read"]
    assert names(offer, owner="you") == []
    assert names(offer, WantedTools("tools.0", kind="web_search"), owner="you") == []
    with pytest.raises(ToolsNotAllowed):
        names(offer, asks("search"), owner="you")
