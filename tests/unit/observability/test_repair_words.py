import pytest

from proxy.facts import (
    Asked,
    BrokeOff,
    Coerced,
    Compacted,
    Dropped,
    Fact,
    Healed,
    LoopNoticed,
    RejectedReply,
    Renamed,
    Repaired,
    Rescued,
    RoundsExceeded,
    WindowFilled,
    Withheld,
)
from proxy.guardrails.verdict import Defect
from proxy.observability.repair_words import in_words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ((), ""),
        ((Asked("as_asked"),), ""),
        ((Rescued("hermes", "f"),), "a call rescued from text (hermes)"),
        (
            (Rescued("hermes", "f"), Rescued("hermes", "g"), Rescued("json", "g")),
            "3 calls rescued from text (hermes, json)",
        ),
        ((Repaired("f"),), "broken JSON mended"),
        ((Coerced("f", "/a"), Coerced("f", "/b")), "2 values converted"),
        ((Renamed("getWeather", "get_weather"),), "a tool's name corrected"),
        ((Dropped("x"), Healed("ids")), "a part dropped, the history mended"),
        ((LoopNoticed("f", 3),), "the same call of f 3 times"),
        ((RoundsExceeded(50),), "an answer asked for after 50 rounds of tools"),
        ((Withheld(),), "no retry, as too many run already"),
        ((BrokeOff("f"),), "a call of f broke off"),
        ((WindowFilled(512),), "the window is full"),
        (
            (Compacted(1, 1, 0, 1, 400, 900, 512, is_new=True),),
            "history cut from 900 to 400 tokens",
        ),
        ((Compacted(0, 0, 0, 0, 400, 400, 512),), ""),
    ],
)
def test_what_was_repaired_is_told_in_words(facts: tuple[Fact, ...], words: str) -> None:
    assert in_words(facts) == words


@pytest.mark.parametrize("defect", Defect)
def test_every_defect_has_its_words(defect: Defect) -> None:
    told = in_words((RejectedReply(defect.value),))
    assert len(told.split()) > 2
    assert "_" not in told
