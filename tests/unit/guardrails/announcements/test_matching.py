from dataclasses import replace

import pytest

from proxy.guardrails.announcements.cues import Cues
from proxy.guardrails.announcements.matching import CueFinding, Matcher
from proxy.guardrails.announcements.recognition import normalize

# An artificial language in which each field has an effect.
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


def find_cue(
    sentence: str, cues: Cues = CUES, tool_words: tuple[str, ...] = ("grep",)
) -> CueFinding:
    return Matcher(cues).find(normalize(sentence), tool_words)


@pytest.mark.parametrize(
    ("sentence", "finding"),
    [
        # sentences with a cue
        ("Ego will look.", "announced"),
        ("Ego will now then now look at it.", "announced"),
        ("Ego will run the tests.", "announced"),
        ("Ego will grep.", "announced"),
        ("Ego will frobnicate:", "announced"),
        ("Ego will frobnicate it at once.", "announced"),
        ("Ego now digs.", "announced"),
        ("Digs ego.", "announced"),
        ("Today it looketh.", "announced"),
        ("Looking at it.", "announced"),
        ("Well, looking at what helps.", "announced"),
        ("It is up, looking at once.", "announced"),
        ("Search for it…", "announced"),
        ("Today bakiyorum.", "announced"),
        ("Today do it please:", "announced"),
        ("Well, one moment please…", "announced"),
        ("Hold on, now.", "announced"),
        ('Ego will look: "', "announced"),
        # sentences with a cue and a phrase that bars it
        ("Ego will look tomorrow.", "barred"),
        ("Ego will look, dont, think.", "barred"),
        ("Tell me and ego will look.", "barred"),
        ("He says ego will look.", "barred"),
        ("Never ego digs.", "barred"),
        ("Ego will look forward.", "barred"),
        ("Ego will look very forward.", "barred"),
        ("Ego will look: it is blue.", "barred"),
        # sentences without a cue
        ("Nothing here.", "nothing"),
        ("Ego will frobnicate.", "nothing"),
        ("Ego will explain:", "nothing"),
        ("Ego will 42:", "nothing"),
        ("Looking helps.", "nothing"),
        ("It is up, looking.", "nothing"),
        ("Search for it.", "nothing"),
        ("Bakiyorum today.", "nothing"),
        ("One moment of it.", "nothing"),
        ("Egos will look.", "nothing"),
    ],
)
def test_find_cue_classifies_a_sentence_as_announced_or_barred_or_nothing(
    sentence: str, finding: CueFinding
) -> None:
    assert find_cue(sentence) == finding


def test_at_most_three_words_may_separate_a_cue_from_a_final_verb() -> None:
    assert find_cue("Ego will this old file prove.", GAP) == "announced"
    assert find_cue("Ego will this very old file prove.", GAP) == "nothing"
    assert find_cue("Ego will this, prove.", GAP) == "nothing"
    assert find_cue("Ego will this not prove.", GAP) == "barred"
    assert find_cue("Ego will grep.", GAP) == "nothing"


def test_a_cue_matches_inside_other_text_in_a_script_without_spaces() -> None:
    assert find_cue("__ab--xy__", UNSPACED) == "announced"
    assert find_cue("__ab---xy__", UNSPACED) == "nothing"


def test_a_final_colon_announces_nothing_in_a_language_without_verbs_of_saying() -> None:
    assert find_cue("Ego will frobnicate:", replace(CUES, sayings="")) == "nothing"


def test_the_matcher_recognizes_requests_and_afterthoughts() -> None:
    matcher = Matcher(CUES)

    assert matcher.is_request(normalize("Just tell me."))
    assert not matcher.is_request(normalize("Just tell him."))
    assert matcher.is_afterthought(normalize("Well, this takes a while."))
    assert not matcher.is_afterthought(normalize("All this takes a while."))
    assert not matcher.is_afterthought(normalize("A while."))
