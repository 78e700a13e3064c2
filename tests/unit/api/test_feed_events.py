import msgspec

from proxy.api.feed_events import Cards, InitialState
from tests.fakes.feed import CARD, STATE


def test_an_event_is_unchanged_after_encoding_and_decoding() -> None:
    for update in (STATE, Cards(2, (CARD,))):
        assert msgspec.json.decode(msgspec.json.encode(update), type=type(update)) == update


def test_a_state_of_an_older_version_can_be_decoded() -> None:
    state = msgspec.to_builtins(STATE)
    for name in ("worker", "tool_servers", "confirmations"):
        del state[name]
    assert msgspec.convert(state, InitialState, strict=False) == STATE
