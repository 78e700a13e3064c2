import logging
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.guardrails.model_quirks import GENERIC
from proxy.guardrails.offer import TextPolicy
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.profile import GENERIC as PROFILE
from proxy.profiles.recognition import Evidence, Recognition
from proxy.profiles.tuned import (
    Tuned,
    TunedSettings,
    apply_tuned,
    describe_tuned,
    guardrails_digest,
    keys_of,
    read_tuned,
)
from proxy.serving.assembly import tuned_changes
from proxy.settings import Settings
from proxy.settings.sections import Guardrails, Profile

KNOWN = KnownModel(
    "m", Recognition(PROFILE, ""), GENERIC, evidence=Evidence(template="{{ x }}"), build="b1"
)
KNOWN = replace(KNOWN, identity="qwen")


POLICY = {"guardrails": {"text_policy": TextPolicy.RESPOND}}


def write(
    folder: Path, known: KnownModel = KNOWN, value: str = '"respond"', profile: str = ""
) -> Path:
    keys = "".join(f'{name} = "{value}"\n' for name, value in keys_of(known).items())
    path = folder / "qwen.toml"
    text = f"[keys]\n{keys}[guardrails]\ntext_policy = {value}\n[profile]\n{profile}\n"
    path.write_text(text, encoding="utf-8")
    return path


def tuned_settings(
    folder: Path, profile: dict[str, str] | None = None, **policy: str
) -> TunedSettings:
    settings = Settings(
        guardrails=Guardrails.model_validate(policy), profile=Profile.model_validate(profile or {})
    )
    return TunedSettings(folder, lambda changes: tuned_changes(settings, changes))


def test_operator_settings_take_precedence_over_tuned_settings(tmp_path: Path) -> None:
    write(tmp_path)
    assert tuned_settings(tmp_path).of(KNOWN) == POLICY
    assert tuned_settings(tmp_path, mode="on").of(KNOWN) == POLICY
    assert tuned_settings(tmp_path, text_policy="accept").of(KNOWN) == {}
    assert tuned_settings(tmp_path).of(replace(KNOWN, identity="other")) == {}
    assert TunedSettings().of(KNOWN) == {}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (replace(KNOWN, evidence=Evidence(template="{{ y }}")), "template"),
        (replace(KNOWN, build="b2"), "engine"),
    ],
)
def test_settings_tuned_with_another_template_or_engine_are_dropped_with_a_log_line(
    changed: KnownModel, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert tuned_settings(tmp_path).of(changed) == {}
    (line,) = caplog.messages
    assert line == f"{path} no longer applies (changed: {name}); run temper tune again"


def test_settings_tuned_with_other_guardrails_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace(guardrails_digest(), "0"))
    assert tuned_settings(tmp_path).of(KNOWN) == {}


def test_tuned_files_with_invalid_toml_or_unknown_values_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.toml").write_text("= 3")
    assert [*read_tuned(tmp_path)] == []
    for value, profile in (('"perhaps"', ""), ('"respond"', 'tools_in_prompt = "somehow"')):
        write(tmp_path, value=value, profile=profile)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert tuned_settings(tmp_path).of(KNOWN) == {}
        assert "unknown settings" in caplog.text


def test_describe_tuned_lists_the_tuned_settings_in_one_line() -> None:
    settings: Tuned = {"keys": {"model": "m"}, **POLICY, "profile": {"effort": "low"}}
    assert describe_tuned(settings) == "text_policy = respond, effort = low"


def test_operator_settings_take_precedence_over_tuned_profile_values(tmp_path: Path) -> None:
    write(tmp_path, profile='tools_in_prompt = "json"\neffort = "low"')
    earned = {"tools_in_prompt": "json", "effort": "low"}
    assert tuned_settings(tmp_path).of(KNOWN) == {**POLICY, "profile": earned}
    settings = tuned_settings(tmp_path, {"effort": "auto"}, text_policy="accept")
    assert settings.of(KNOWN) == {"profile": {"tools_in_prompt": "json"}}
    overrides = apply_tuned(Overrides(), {"profile": earned})
    assert (overrides.convention, overrides.effort) == ("json", "low")
    own_overrides = Overrides(convention="", effort="high")
    assert apply_tuned(own_overrides, {"profile": earned}) == own_overrides
