import pytest

from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import Replay
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides
from proxy.serving.profile_overrides import overrides_of
from proxy.settings import load_settings

PROFILES = load_profiles(None)


def overrides(**profile: object) -> Overrides:
    return overrides_of(load_settings(None, {"profile": profile}).profile, PROFILES)


@pytest.mark.parametrize(
    ("written", "convention"), [("auto", None), ("never", ""), ("mistral", "mistral")]
)
def test_the_operator_decides_how_tools_are_described(written: str, convention: str | None) -> None:
    made = overrides(tools_in_prompt=written, replay="last")
    assert (made.convention, made.replay) == (convention, Replay.LAST)


@pytest.mark.parametrize("name", ["qwen3", "generic"])
def test_a_profile_can_be_chosen_by_name(name: str) -> None:
    chosen = overrides(name=name).profile
    assert chosen is not None
    assert chosen.name == name


@pytest.mark.parametrize(("name", "near"), [("qwen-3", "qwen3"), ("zzzzzzzz", "generic")])
def test_an_unknown_profile_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"did you mean '{near}'") as raised:
        overrides(name=name)
    assert raised.value.setting == "profile.name"


@pytest.mark.parametrize(("written", "is_on"), [("auto", None), ("on", True), ("off", False)])
def test_the_operator_decides_whether_a_model_thinks(written: str, is_on: bool | None) -> None:
    assert overrides(thinking=written).thinking is is_on
