import tomllib
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.simulated import profiles
from temper_evals.simulated.profiles import (
    UNSEEN,
    Cell,
    Flaw,
    Level,
    Reaction,
    grid,
    load_profile,
    profile_names,
    sources_of,
)


@pytest.mark.parametrize("name", profile_names())
def test_every_rate_of_a_profile_has_a_source_and_is_between_low_and_high(name: str) -> None:
    path = profiles.folder() / "profiles" / f"{name}.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    sources = sources_of(name)
    for rate in document.get("rates", {}).values():
        assert 0 <= rate["low"] <= rate["value"] <= rate["high"] <= 1
        assert rate["source"]
        assert [source for source in rate["source"] if source not in sources] == []
    assert all(sources.values())


def test_every_reaction_has_a_source_and_mid_is_between_low_and_high() -> None:
    reactions = tomllib.loads((profiles.folder() / "reactions.toml").read_text(encoding="utf-8"))
    assert {*reactions} == {member.value for member in Reaction}
    for entry in reactions.values():
        assert 0 <= entry["low"] <= entry["mid"] <= entry["high"] <= 1
        assert entry["source"]


def test_the_grid_has_27_combinations_of_three_levels() -> None:
    assert len({cell.name for cell in grid() if cell.swept is None}) == 27
    low, high = (
        load_profile("p-small", Cell(level, level, level))
        for level in Level
        if level is not Level.MID
    )
    assert low.rates[Flaw.FOREIGN] < high.rates[Flaw.FOREIGN]
    assert low.reactions[Reaction.SPECIFIC] < high.reactions[Reaction.SPECIFIC]
    assert low.reactions[Reaction.CONSTRAINED_ERROR] == 0


def test_each_assumed_reaction_has_a_cell_of_the_grid_that_changes_only_this_reaction() -> None:
    reactions_file = tomllib.loads(
        (profiles.folder() / "reactions.toml").read_text(encoding="utf-8")
    )
    assumed = {
        Reaction(name)
        for name, table in reactions_file.items()
        if "assumption" in table["source"] and Reaction(name) not in profiles.CORRECTIONS
    }
    swept = [other_cell.swept for other_cell in grid() if other_cell.swept is not None]
    assert assumed <= {reaction for reaction, _ in swept}
    for reaction, chance in swept:
        cell = Cell(swept=(reaction, chance))
        usual, changed = (load_profile("p-small", setting).reactions for setting in (Cell(), cell))
        assert changed == {**usual, reaction: chance}
        assert usual[reaction] != chance
    assert Cell(swept=(Reaction.OVER_ACTING, 0.03)).name == "over_acting=0.03"


def test_the_guide_lists_every_reaction_with_its_rates() -> None:
    guide = Path("docs/guides/evaluating.md").read_text(encoding="utf-8")
    reactions = tomllib.loads((profiles.folder() / "reactions.toml").read_text(encoding="utf-8"))
    for name, entry in reactions.items():
        row = next(line for line in guide.splitlines() if line.startswith(f"| `{name}`"))
        _, _, low_mid_high, swept, source, _ = (cell.strip() for cell in row.split("|"))
        assert low_mid_high == ", ".join(f"{entry[level]:g}" for level in ("low", "mid", "high"))
        assert swept == ", ".join(f"{chance:g}" for chance in entry.get("swept", ()))
        assert ("**assumed**" in source) is ("assumption" in entry["source"])


def test_a_profile_without_its_detectable_flaws_has_only_wrong_values() -> None:
    best = load_profile("p-small").without(frozenset(Flaw) - UNSEEN)
    assert {*best.rates} == {Flaw.WRONG_VALUE}
    assert load_profile("healthy").rates == {}
    assert load_profile("n-8b-lazy").holds_form


def test_the_coder_profiles_have_their_own_formats_of_calls_and_results_unlike_p_small() -> None:
    for name in ("coder-0.5b", "coder-1.5b"):
        profile = load_profile(name)
        assert profile.call_forms == ("```json\n{call}\n```", "{call}")
        assert all("{result}" in form for form in profile.result_forms)
    assert load_profile("p-small").call_forms == ()
    assert load_profile("p-small").result_forms == ("{result}",)


def test_the_guide_describes_every_flaw_that_follows_tool_results() -> None:
    guide = Path("docs/guides/evaluating.md").read_text(encoding="utf-8")
    flaws = (*profiles.AFTER_RESULTS, Flaw.PLACEHOLDERS)
    assert [flaw for flaw in flaws if f"\n| `{flaw.value}` | " not in guide] == []


def test_the_error_for_an_unknown_profile_lists_the_known_profiles() -> None:
    with pytest.raises(InvalidConfiguration, match="p-small"):
        load_profile("large")
