import pytest

from proxy.conversation.workflows import Workflow
from proxy.errors import InvalidConfiguration
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides
from proxy.serving.assembly import overrides_of, policy_of, service_options_of
from proxy.settings import load_settings

PROFILES = load_profiles(None)


def overrides(**profile: object) -> Overrides:
    return overrides_of(load_settings(None, {"profile": profile}).profile, PROFILES)


@pytest.mark.parametrize(
    ("value", "convention"), [("auto", None), ("never", ""), ("mistral", "mistral")]
)
def test_the_settings_tools_in_prompt_and_replay_are_converted_to_overrides(
    value: str, convention: str | None
) -> None:
    made = overrides(tools_in_prompt=value, replay="last")
    assert (made.convention, made.replay) == (convention, "last")


@pytest.mark.parametrize("name", ["qwen3", "generic"])
def test_the_setting_profile_name_selects_the_profile(name: str) -> None:
    profile = overrides(name=name).profile
    assert profile is not None
    assert profile.name == name


@pytest.mark.parametrize(("name", "suggestion"), [("qwen-3", "qwen3"), ("zzzzzzzz", "generic")])
def test_an_unknown_profile_is_refused_with_the_nearest_name(name: str, suggestion: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"did you mean '{suggestion}'") as raised:
        overrides(name=name)
    assert raised.value.setting == "profile.name"


@pytest.mark.parametrize(("value", "is_on"), [("auto", None), ("on", True), ("off", False)])
def test_the_setting_profile_thinking_is_converted_to_an_override(
    value: str, is_on: bool | None
) -> None:
    assert overrides(thinking=value).thinking is is_on


@pytest.mark.parametrize(("value", "effort"), [("auto", ""), ("low", "low"), ("none", "none")])
def test_the_setting_profile_effort_is_converted_to_an_override(value: str, effort: str) -> None:
    assert overrides(effort=value).effort == effort


def test_guardrail_settings_are_converted_to_a_policy() -> None:
    values = {"mode": "observe", "max_attempts": 2, "strict": True, "max_tool_rounds": 9}
    policy = policy_of(load_settings(flags={"guardrails": values}))
    assert (policy.mode, policy.attempts, policy.is_strict) == (Mode.OBSERVE, 2, True)
    assert (policy.most_rounds, policy.text_policy) == (9, None)


@pytest.mark.parametrize("value", [member.value for member in CloseOut])
def test_guardrails_close_out_is_converted_to_the_policy(value: str) -> None:
    values = {"close_out": value, "close_out_tries": 2}
    policy = policy_of(load_settings(flags={"guardrails": values}))
    assert (policy.close_out.value, policy.close_out_tries) == (value, 2)


def test_a_text_policy_that_is_set_to_auto_overrides_the_profile() -> None:
    policy = policy_of(load_settings(flags={"guardrails": {"text_policy": "auto"}}))
    assert policy.text_policy is TextPolicy.AUTO


def test_workflows_are_read_by_model_name() -> None:
    flags = {"workflows": {"tiny": {"terminal_tools": ["done"]}}}
    assert load_settings(flags=flags).workflows == {"tiny": Workflow((), (), ("done",))}


def test_server_and_backend_settings_are_converted_to_service_options() -> None:
    flags = {"server": {"max_waiting": 3}, "backend": {"parallel_requests": 2}}
    options = service_options_of(load_settings(flags=flags))
    assert (options.max_waiting, options.parallel) == (3, 2)
    assert options.context.budget == "backend"
    assert options.profiles != ()
