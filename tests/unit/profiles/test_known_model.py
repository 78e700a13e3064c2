from dataclasses import replace

import pytest

from proxy.guardrails.model_quirks import Quirks
from proxy.profiles.known_model import KnownModel, Overrides, introduce
from proxy.profiles.profile import GENERIC, Matching, Profile
from proxy.profiles.recognition import Evidence, Recognition

FALCON = Profile(
    "falcon", "Falcon", Quirks(replay="none", syntaxes=("hermes",)), Matching(("falcon*",))
)
HERON = Profile("heron", "Heron", Quirks(convention="mistral"), Matching(("heron*",)))
PROFILES = (FALCON, HERON)


def test_the_operators_wishes_win() -> None:
    evidence = Evidence(("falcon-7b",))
    plain = introduce("m", evidence, PROFILES, Overrides())
    assert plain.quirks == FALCON.quirks
    chosen = introduce("m", evidence, PROFILES, Overrides(profile=HERON))
    assert (chosen.recognition.profile, chosen.recognition.reason) == (
        HERON,
        "chosen by profile.name",
    )
    wished = introduce("m", evidence, PROFILES, Overrides(convention="json", replay="last"))
    assert wished.quirks == replace(FALCON.quirks, convention="json", replay="last")
    assert introduce("m", evidence, (), Overrides()).recognition.profile is GENERIC


@pytest.mark.parametrize(("convention", "several"), [("react", False), ("json", True)])
def test_who_acts_in_turns_acts_once_at_a_time(convention: str, *, several: bool) -> None:
    evidence = Evidence(("falcon-7b",))
    chosen = introduce("m", evidence, PROFILES, Overrides(convention=convention))
    assert chosen.quirks.calls_in_parallel is several


def test_a_chat_template_that_describes_no_tools_gets_help_unless_the_operator_forbids_it() -> None:
    evidence = Evidence(("falcon-7b",), template="{{ messages }}")
    assert introduce("m", evidence, PROFILES, Overrides()).quirks.convention == "hermes"
    assert introduce("m", evidence, PROFILES, Overrides(convention="")).quirks.convention == ""


@pytest.mark.parametrize(
    ("template", "capabilities"),
    [("{{ messages }}", ("tools", "vision")), ("<think>", ("tools", "thinking", "vision"))],
)
def test_a_client_may_use_tools_thoughts_and_senses(
    template: str, capabilities: tuple[str, ...]
) -> None:
    evidence = Evidence(("m",), template=template)
    known = KnownModel(
        "m", Recognition(GENERIC, "none"), GENERIC.quirks, evidence=evidence, senses=("vision",)
    )
    assert known.capabilities == capabilities
