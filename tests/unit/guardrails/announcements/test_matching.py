from dataclasses import replace
from functools import cached_property

import pytest

from proxy.guardrails.announcements.cues import Cues
from proxy.guardrails.announcements.matching import CueFinding, Matcher
from proxy.guardrails.announcements.recognition import normalise

# A language of its own, so that each field is seen at work.
CUES = Cues(
    language="test",
    script="latin",
    openings="ego will",
    fillers="now, now then",
    acts="look, run the test*",
    subjects="ego",
    verbs="digs",
    forms="looketh",
    starts="looking",
    trailing="search",
    leads="well",
    stems="bak",
    suffixes="iyorum",
    endings="do it",
    wholes="one moment, hold on now",
    particles="please",
    bars="tomorrow, dont think",
    requests="tell me",
    bars_before="says",
    bars_beside="never",
    bars_after="forward, * forward",
    finites="helps",
    clauses="what",
    urgencies="at once",
    sayings="explain",
    afterthoughts="this takes",
)
GAP = replace(CUES, gap=3, acts="prove", bars_inside="not")
UNSPACED = Cues(language="unspaced", script="han", is_spaced=False, openings="ab", acts="xy", gap=2)


def found(sentence: str, cues: Cues = CUES, tool_words: tuple[str, ...] = ("grep",)) -> CueFinding:
    return Matcher(cues).find(normalise(sentence), tool_words)


@pytest.mark.parametrize(
    "sentence",
    [
        "Ego will look.",
        "Ego will now then now look at it.",
        "Ego will run the tests.",
        "Ego will grep.",
        "Ego will frobnicate:",
        "Ego will frobnicate it at once.",
        "Ego now digs.",
        "Digs ego.",
        "Today it looketh.",
        "Looking at it.",
        "Well, looking at what helps.",
        "It is up, looking at once.",
        "Search for it…",
        "Today bakiyorum.",
        "Today do it please:",
        "Well, one moment please…",
        "Hold on, now.",
        'Ego will look: "',
    ],
)
def test_a_cue_announces(sentence: str) -> None:
    assert found(sentence) == "announced"


@pytest.mark.parametrize(
    "sentence",
    [
        "Ego will look tomorrow.",
        "Ego will look, dont, think.",
        "Tell me and ego will look.",
        "He says ego will look.",
        "Never ego digs.",
        "Ego will look forward.",
        "Ego will look very forward.",
        "Ego will look: it is blue.",
    ],
)
def test_a_blocker_of_a_cue_is_distinguished_from_no_cue(sentence: str) -> None:
    assert found(sentence) == "barred"


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing here.",
        "Ego will frobnicate.",
        "Ego will explain:",
        "Ego will 42:",
        "Looking helps.",
        "It is up, looking.",
        "Search for it.",
        "Bakiyorum today.",
        "One moment of it.",
        "Egos will look.",
    ],
)
def test_words_without_a_cue_match_nothing(sentence: str) -> None:
    assert found(sentence) == "nothing"


def test_a_final_verb_may_be_some_words_away() -> None:
    assert found("Ego will this old file prove.", GAP) == "announced"
    assert found("Ego will this very old file prove.", GAP) == "nothing"
    assert found("Ego will this, prove.", GAP) == "nothing"
    assert found("Ego will this not prove.", GAP) == "barred"
    assert found("Ego will grep.", GAP) == "nothing"


def test_a_script_without_spaces_has_no_word_boundaries() -> None:
    assert found("__ab--xy__", UNSPACED) == "announced"
    assert found("__ab---xy__", UNSPACED) == "nothing"


def test_a_colon_announces_nothing_without_known_verbs_of_saying() -> None:
    assert found("Ego will frobnicate:", replace(CUES, sayings="")) == "nothing"


def test_requests_and_afterthoughts_are_recognized() -> None:
    matcher = Matcher(CUES)

    assert matcher.is_request(normalise("Just tell me."))
    assert not matcher.is_request(normalise("Just tell him."))
    assert matcher.is_afterthought(normalise("Well, this takes a while."))
    assert not matcher.is_afterthought(normalise("All this takes a while."))
    assert not matcher.is_afterthought(normalise("A while."))


def test_every_pattern_can_be_precompiled() -> None:
    matcher = Matcher(CUES)
    patterns = {
        name for name, member in vars(Matcher).items() if isinstance(member, cached_property)
    }
    assert patterns
    assert patterns.isdisjoint(vars(matcher))
    matcher.prepare()
    assert patterns <= vars(matcher).keys()
