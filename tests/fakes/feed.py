"""The initial state event of the dashboard feed: one model, no requests."""

from proxy.api.feed_events import InitialState, ModelCard
from proxy.observability.history import Counts, CountsBySpan

CARD = ModelCard("qwen", "default", "b", "loaded", "", 0, 1, 2, 4, 8192, 0.5)
COUNTS = Counts(
    clean=380,
    repaired=22,
    retried=7,
    fallback=1,
    exhausted=2,
    prompt=100,
    output=10,
    requests=412,
    measured=100,
    cached=88,
)
STATE = InitialState(
    version="1.2",
    instance="abc",
    workers=1,
    read_only=False,
    keeps_exchanges=False,
    started=0.0,
    now=1010.0,
    number=1,
    step=5,
    models=(CARD,),
    totals=CountsBySpan({"": COUNTS}, {}),
    points=(),
    requests=(),
)
