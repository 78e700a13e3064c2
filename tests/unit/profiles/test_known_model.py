import time
from dataclasses import replace
from typing import Final

import pytest

from proxy.guardrails.model_quirks import Quirks, Replay, Template
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import (
    KnownModel,
    Overrides,
    identify_model,
    quirks_for,
    renders_tools,
    template_quirks,
)
from proxy.profiles.profile import GENERIC, Matching, Profile
from proxy.profiles.recognition import Evidence, Recognition

FALCON = Profile(
    "falcon", "Falcon", Quirks(replay="none", syntaxes=("hermes",)), Matching(("falcon*",))
)
HERON = Profile("heron", "Heron", Quirks(convention="mistral"), Matching(("heron*",)))
PROFILES = (FALCON, HERON)


def test_profile_settings_take_precedence_over_the_recognized_profile() -> None:
    evidence = Evidence(("falcon-7b",))
    plain = identify_model("m", evidence, PROFILES, Overrides())
    assert plain.quirks == FALCON.quirks
    overridden = identify_model("m", evidence, PROFILES, Overrides(profile=HERON))
    assert (overridden.recognition.profile, overridden.recognition.reason) == (
        HERON,
        "chosen by profile.name",
    )
    overridden = identify_model(
        "m", evidence, PROFILES, Overrides(convention="json", replay="last")
    )
    assert overridden.quirks == replace(FALCON.quirks, convention="json", replay="last")
    assert identify_model("m", evidence, (), Overrides()).recognition.profile is GENERIC


@pytest.mark.parametrize(
    ("template", "renders"),
    [
        ("{% if message.reasoning_content %}{{ message.reasoning_content }}{% endif %}", True),
        ("{{ message.thinking }}", True),
        ("{% if 'thinking' in message %}{{ message['thinking'] }}{% endif %}", True),
        ("{{ message.reasoning }}", True),
        ("{# message.reasoning_content #}{{ message.content }}", False),
        ("{{ enable_thinking }}{{ reasoning_effort }}reasoning_content", False),
        ("", None),
    ],
)
def test_a_template_whose_code_reads_reasoning_renders_earlier_reasoning(
    template: str, renders: bool | None
) -> None:
    known = identify_model("m", Evidence(template=template), PROFILES, Overrides())
    assert known.quirks.renders_reasoning is renders


@pytest.mark.parametrize(
    ("name", "renders"), [("gpt-oss", True), ("qwen3.8", True), ("qwq", False), ("llama3", None)]
)
def test_without_a_template_the_profile_says_whether_earlier_reasoning_is_rendered(
    name: str, renders: bool | None
) -> None:
    profile = next(profile for profile in load_profiles() if profile.name == name)
    known = identify_model("m", Evidence(), (), Overrides(profile=profile))
    assert known.quirks.renders_reasoning is renders


@pytest.mark.parametrize("replay", [None, "last", "full"])
def test_the_template_variables_in_kept_by_are_set_only_if_replay_is_full(
    replay: Replay | None,
) -> None:
    keeps = {"preserve_thinking": True}
    model = replace(FALCON, quirks=replace(FALCON.quirks, kept_by=keeps))
    known = identify_model("falcon", Evidence(("falcon",)), (model,), Overrides(replay=replay))
    assert known.quirks.kept_by == (keeps if replay == "full" else {})


@pytest.mark.parametrize(("convention", "several"), [("react", False), ("json", True)])
def test_with_the_react_convention_a_model_makes_one_call_at_a_time(
    convention: str, *, several: bool
) -> None:
    evidence = Evidence(("falcon-7b",))
    overridden = identify_model("m", evidence, PROFILES, Overrides(convention=convention))
    assert overridden.quirks.calls_in_parallel is several


def test_a_template_without_tools_gets_a_convention_unless_the_override_is_empty() -> None:
    evidence = Evidence(("falcon-7b",), template="{{ messages }}")
    assert identify_model("m", evidence, PROFILES, Overrides()).quirks.convention == "hermes"
    assert identify_model("m", evidence, PROFILES, Overrides(convention="")).quirks.convention == ""


@pytest.mark.parametrize(
    ("template", "capabilities"),
    [("{{ messages }}", ("tools", "vision")), ("<think>", ("tools", "thinking", "vision"))],
)
def test_capabilities_of_a_model_are_tools_thinking_and_its_modalities(
    template: str, capabilities: tuple[str, ...]
) -> None:
    evidence = Evidence(("m",), template=template)
    known = KnownModel(
        "m", Recognition(GENERIC, "none"), GENERIC.quirks, evidence=evidence, senses=("vision",)
    )
    assert known.capabilities == capabilities


ANYWHERE: Final = "anywhere"
FIRST: Final = "first"
NOWHERE: Final = "nowhere"
ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."

GEMMA2 = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != "
    f"(loop.index0 % 2 == 0) %}}{{{{ raise_exception('{ALTERNATE}') }}}}{{% endif %}}"
)
GEMMA3 = (
    "{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = "
    f'messages[0]["content"] -%}}{{%- endif -%}}{{{{ raise_exception("{ALTERNATE}") }}}}'
)
MISTRAL_7B = (
    f"{{{{ raise_exception('{ALTERNATE}') }}}}{{% if message['role'] == 'user' %}}[INST]"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
)
MISTRAL_SMALL = (
    "{%- if messages[0]['role'] == 'system' %}{%- endif %}"
    '{{- raise_exception("After the optional system message, conversation roles must alternate '
    'user/assistant/user/assistant/...") }}{{- raise_exception("Only user and assistant roles are '
    'supported, with the exception of an initial optional system message!") }}'
)
DEVSTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- endif %}{{- raise_exception('After the optional "
    "system message, conversation roles must alternate user and assistant roles except for tool "
    "calls and results.') }}{{- raise_exception('Only user, assistant and tool roles are "
    "supported, got ' + message['role'] + '.') }}"
)
QWEN35 = (
    "{%- if tools %}{%- endif %}{%- if not loop.first %}{{- raise_exception('System message must "
    "be at the beginning.') }}{%- endif %}{%- else %}"
    "{{- raise_exception('Unexpected message role.') }}"
)
GPT_OSS = '{%- if messages[0].role == "developer" or messages[0].role == "system" %}'
CHATML = "{% for message in messages %}{{ '<|im_start|>' + message.role }}{% endfor %}"


@pytest.mark.parametrize(
    ("text", "believed", "read"),
    [
        (GEMMA2, Template(), Template(False, NOWHERE, alternates=True)),
        (GEMMA3, Template(), Template(False, FIRST, alternates=True)),
        (MISTRAL_7B, Template(), Template(False, NOWHERE, alternates=True)),
        (MISTRAL_SMALL, Template(), Template(False, FIRST, alternates=True)),
        (DEVSTRAL, Template(), Template(False, FIRST, alternates=True)),
        (QWEN35, Template(), Template(False, FIRST)),
        (GPT_OSS, Template(False, FIRST), Template(True, FIRST)),
        (CHATML, Template(), Template()),
        (CHATML, Template(False, FIRST), Template(False, FIRST)),
        (CHATML, Template(False, NOWHERE, alternates=True), Template(False, FIRST)),
        ("{{ raise_exception('Unknown role: ' + role) }}", Template(), Template(False, ANYWHERE)),
        ("{# raise_exception('System role not supported') #}", Template(), Template()),
        ("System role not supported: roles must alternate", Template(), Template()),
    ],
)
def test_supported_roles_are_read_from_the_error_messages_of_a_chat_template(
    text: str, believed: Template, read: Template
) -> None:
    assert template_quirks(text, believed) == read


def test_control_tokens_are_those_of_the_profile_and_not_read_from_the_template() -> None:
    tokens = ("<start_of_turn>",)
    assert template_quirks(GEMMA2, Template(control_tokens=tokens)).control_tokens == tokens


@pytest.mark.parametrize(
    ("text", "renders"),
    [
        ("{%- if tools %}{{- '# Tools' }}{%- endif %}", True),
        ("{%- if not tools is defined %}{%- set tools = none %}{%- endif %}", True),
        ("{{- render_tool_namespace('functions', tools) }}", True),
        ("You may use tools.{{ messages }}", False),
        ("{{ 'You have no tools, it\\'s said' + content }}", False),
        ("{{ \"no tools'\" }}{% if message['tools'] is not none %}{% endif %}", False),
        ("{% for tool in message.tools %}{% endfor %}", False),
        ("{% if xml_tools %}{% endif %}", False),
        ("{# if tools #}{% if message['tool_calls'] %}{% endif %}", False),
        ("", False),
    ],
)
def test_a_template_renders_tools_if_its_code_uses_the_variable_tools(
    text: str, renders: bool
) -> None:
    assert renders_tools(text) is renders


def convention(profile: Profile, template: str) -> str:
    return quirks_for(profile, template).convention


def test_the_fallback_convention_is_used_for_a_template_without_tools() -> None:
    assert convention(Profile("a", "A", Quirks()), CHATML) == "hermes"
    assert convention(Profile("a", "A", Quirks(), fallback_convention="json"), CHATML) == "json"


def test_the_convention_of_the_profile_is_used_for_a_template_without_tools() -> None:
    profile = Profile("a", "A", Quirks(convention="gemma"), fallback_convention="json")
    assert convention(profile, GEMMA3) == "gemma"


def test_no_convention_is_used_for_a_template_with_tools() -> None:
    assert convention(Profile("a", "A", Quirks()), QWEN35) == ""
    assert convention(Profile("a", "A", Quirks(convention="json")), QWEN35) == ""


def test_without_a_template_the_quirks_of_the_profile_are_unchanged() -> None:
    quirks = Quirks(convention="gemma", template=Template(False, NOWHERE, alternates=True))
    assert quirks_for(Profile("a", "A", quirks), "") is quirks
    assert quirks_for(Profile("a", "A", Quirks()), "").convention == ""


def test_the_reported_support_of_tools_takes_precedence_over_the_template() -> None:
    profile = Profile("a", "A", Quirks(convention="gemma"), fallback_convention="json")
    assert quirks_for(profile, CHATML, takes_tools=True).convention == ""
    assert quirks_for(profile, "", takes_tools=True).convention == ""
    assert quirks_for(profile, QWEN35, takes_tools=False).convention == "gemma"
    assert quirks_for(Profile("a", "A", Quirks()), "", takes_tools=False).convention == "hermes"


def test_a_template_changes_only_the_quirks_that_depend_on_it() -> None:
    quirks = Quirks(syntaxes=("hermes",), resets_state=True)
    corrected = quirks_for(Profile("a", "A", quirks), QWEN35)
    assert corrected == Quirks(
        syntaxes=("hermes",), resets_state=True, template=Template(False, FIRST)
    )


@pytest.mark.parametrize(
    "unit", ["{#", "{%", "{{ raise_exception('only ", "{{'\\'", '{{"', "only "]
)
def test_searching_a_template_takes_linear_time(unit: str) -> None:
    def fastest(length: int) -> float:
        half = unit * (length // len(unit) // 2)
        text = f"{{{{{half}}}}}{half}"
        times: list[float] = []
        for _ in range(5):
            started = time.process_time()
            for _ in range(3):
                renders_tools(text)
                template_quirks(text, Template())
            times.append(time.process_time() - started)
        return min(times)

    assert any(fastest(80_000) < 2.5 * fastest(40_000) for _ in range(5))
