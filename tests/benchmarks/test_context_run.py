"""A run of a few turns, so small that its figures mean nothing, and the figures made of others."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import context_run
from benchmarks.context_material import AgentRun
from benchmarks.context_model import learn_words
from benchmarks.context_plot import MissingLibrary, check_library, draw
from benchmarks.context_recorder import Sent
from benchmarks.context_results import Recall, Run, TurnFound, goals, table
from proxy.conversation import json

TURN = TurnFound(
    step=1,
    prompt=1000,
    cached=0,
    estimate=1010,
    client=1010,
    tier=0,
    epoch=0,
    is_broken=False,
    is_over=False,
    is_counted=True,
    facts=2,
    added_ms=100.0,
    counting_ms=0.0,
)
LATER = replace(TURN, step=2, cached=900, estimate=1030, added_ms=4.0)
RUN = Run("tiered", (TURN, LATER), Recall(2, None, ()))


@pytest.mark.usefixtures("programs_are_forks")
def test_a_few_turns_are_played_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    arguments = ["--turns", "6", "--window", "4096", "--strategies", "tiered", "off"]
    assert context_run.main([*arguments, "--output", str(file)]) == 0
    document = json.parse(file.read_bytes())
    assert isinstance(document, dict)
    runs = document["runs"]
    assert isinstance(runs, list)
    tiered, off = (one["turns"] for one in runs if isinstance(one, dict))
    assert isinstance(tiered, list)
    assert isinstance(off, list)
    assert len(tiered) == len(off) == 6
    last, untouched = tiered[-1], off[-1]
    assert isinstance(last, dict)
    assert isinstance(untouched, dict)
    assert isinstance(last["prompt"], int)
    assert isinstance(untouched["prompt"], int)
    assert 0 < last["prompt"] + 512 <= 4096 or last["is_over"]
    assert last["epoch"] != 0
    assert last["prompt"] < untouched["prompt"]
    assert (untouched["epoch"], untouched["estimate"]) == (0, None)
    printed = capsys.readouterr().out
    assert "| tiered |" in printed
    assert "goal 90%" in printed


@pytest.mark.parametrize("turns", ["1", "61"])
def test_a_run_that_is_too_short_or_too_long_is_refused(
    turns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert context_run.main(["--turns", turns]) == 2
    assert "--turns must be from 2 to 60" in capsys.readouterr().err


def test_the_same_seed_makes_the_same_run() -> None:
    assert AgentRun(12) == AgentRun(12)
    assert AgentRun(12).results != AgentRun(12, seed=2).results


def test_every_planted_fact_stands_in_one_result() -> None:
    agent = AgentRun(50)
    assert len(agent.planted) == 20
    for fact in agent.planted:
        assert sum(fact.words in result for result in agent.results[:10]) == 1
        assert not any(fact.words in result for result in agent.results[10:])


def test_the_commonest_neighbours_become_one_token() -> None:
    words = learn_words("the cat the hat the rat", joins=2)
    assert words.merges == ("t h", "th e") or words.merges == ("h e", "t he")
    assert "the" in words.tokens
    assert len(set(words.tokens)) == len(words.tokens)


def test_figures_are_those_of_all_turns() -> None:
    assert RUN.cached == pytest.approx(0.45)
    assert RUN.prefilled == 1100
    assert RUN.added_ms == pytest.approx(4.0)
    assert RUN.error == pytest.approx(0.03)
    assert "| tiered | 45.0% | 1,100 | 0 | 0 | 3.0% | 3.0% | 4.0 ms | no cut |" in table([RUN])


def test_goals_are_told_as_far_as_the_runs_allow() -> None:
    sliding = replace(RUN, strategy="sliding", turns=(TURN, replace(LATER, cached=0)))
    off = replace(RUN, strategy="off")
    assert goals([sliding, off]) == []
    told = dict(goals([RUN, sliding, off]))
    assert told["from cache 45.0%, goal 90%"] is False
    assert told["0 breaks, at most 4"] is True
    assert told["45.0 points more than sliding, goal 25"] is True
    assert told["estimates of all turns off by 3.0% at p99, goal 2%"] is False
    assert told["0.0 ms added by compaction at p95, goal 15 ms"] is True


def test_what_is_left_of_the_facts_is_held_against_the_goals() -> None:
    lost = ("id: 1",) * 7
    cut = replace(RUN, turns=(TURN, replace(LATER, facts=7)), recall=Recall(20, 2, lost))
    told = dict(goals([cut]))
    assert told["13 facts after the first cut, goal 17"] is False
    assert told["7.0 facts on average since, goal 8"] is False
    kept = replace(cut, turns=(TURN, replace(LATER, facts=8)), recall=Recall(20, 2, lost[:3]))
    assert all(is_met for words, is_met in goals([kept]) if "facts" in words)


@pytest.mark.usefixtures("programs_are_forks")
def test_the_benchmark_runs_with_letters_as_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    arguments = ["--turns", "5", "--window", "4096", "--strategies", "tiered"]
    assert context_run.main([*arguments, "--tokens", "letters", "--output", str(file)]) == 0
    document = json.parse(file.read_bytes())
    assert isinstance(document, dict)
    runs = document["runs"]
    assert isinstance(runs, list)
    assert isinstance(runs[0], dict)
    assert isinstance(runs[0]["turns"], list)
    assert not any(turn["is_over"] for turn in runs[0]["turns"] if isinstance(turn, dict))
    letters, words = AgentRun(9, spelled=True), AgentRun(9)
    assert sum(map(len, letters.results)) < 0.7 * sum(map(len, words.results))
    assert "| tiered |" in capsys.readouterr().out


def test_facts_are_looked_for_in_the_first_prompt_that_was_cut() -> None:
    planted = AgentRun(2).planted[:2]
    kept, lost = planted
    whole = Sent((f"{kept.words} {lost.words}".encode(),), 200, 9, 0, 0.1)
    cut = Sent((kept.words.encode(),), 200, 9, 0, 0.1)
    turns = [TURN, replace(LATER, epoch=1, is_broken=True)]
    found = context_run.recall(planted, turns, [whole, cut])
    assert found == Recall(2, 2, (f"{lost.kind}: {lost.words}",))
    assert context_run.recall(planted, [TURN], [whole]) == Recall(2, None, ())


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")
def test_a_picture_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "run.png"
    draw([RUN, replace(RUN, strategy="off")], 4096, file)
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="it is there")
def test_without_the_library_it_is_said_what_to_install() -> None:
    with pytest.raises(MissingLibrary, match="pip install 'matplotlib"):
        check_library()
