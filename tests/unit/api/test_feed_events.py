import msgspec

from proxy.api.feed_events import Cards, ModelCard, State
from proxy.observability.history import Counts, CountsBySpan

CARD = ModelCard("qwen", "default", "b", "loaded", "", 0, 1, 2, 4, 8192, None)
STATE = State(
    version="1.2",
    instance="abc",
    workers=1,
    read_only=False,
    keeps_exchanges=False,
    started=0.0,
    now=1.0,
    number=1,
    step=5,
    models=(CARD,),
    totals=CountsBySpan({"": Counts(1, 1)}, {}),
    points=(),
    requests=(),
)


def test_what_is_told_is_read_as_it_was_told() -> None:
    for told in (STATE, Cards(2, (CARD,))):
        assert msgspec.json.decode(msgspec.json.encode(told), type=type(told)) == told


def test_a_state_of_an_older_temper_is_understood() -> None:
    told = msgspec.to_builtins(STATE)
    for name in ("worker", "tool_servers", "confirmations"):
        del told[name]
    assert msgspec.convert(told, State, strict=False) == STATE
