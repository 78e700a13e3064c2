import msgspec

from proxy.api.feed_events import Cards, InitialState
from tests.fakes.feed import CARD, STATE


def test_what_is_told_is_read_as_it_was_told() -> None:
    for told in (STATE, Cards(2, (CARD,))):
        assert msgspec.json.decode(msgspec.json.encode(told), type=type(told)) == told


def test_a_state_of_an_older_temper_is_understood() -> None:
    told = msgspec.to_builtins(STATE)
    for name in ("worker", "tool_servers", "confirmations"):
        del told[name]
    assert msgspec.convert(told, InitialState, strict=False) == STATE
