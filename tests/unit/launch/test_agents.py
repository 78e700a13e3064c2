"""Tests how each coding agent is configured, for a single run or permanently."""

import tomllib

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.launch.agents import AGENTS, NO_KEY, Endpoint, as_toml, describe

ENDPOINT = Endpoint("http://127.0.0.1:8367", "my model", 65_536, "sk-1")
WITHOUT_WINDOW = Endpoint("http://127.0.0.1:8367", "m")


@pytest.mark.parametrize("name", AGENTS)
def test_the_profile_of_every_agent_contains_url_model_and_window(name: str) -> None:
    text = describe(AGENTS[name].profile(ENDPOINT), AGENTS[name].program)
    assert ENDPOINT.url in text
    assert ENDPOINT.model in text
    assert "65536" in text


@pytest.mark.parametrize("name", AGENTS)
def test_the_profile_of_an_agent_omits_an_unknown_window(name: str) -> None:
    profile = AGENTS[name].profile(WITHOUT_WINDOW)
    text = describe(profile, AGENTS[name].program)
    assert "None" not in text
    assert NO_KEY in text or name == "codex"  # Codex needs no key


@pytest.mark.parametrize("name", [name for name in AGENTS if AGENTS[name].permanent])
def test_the_permanent_configuration_of_an_agent_contains_url_model_and_window(name: str) -> None:
    permanent = AGENTS[name].permanent
    assert permanent is not None
    content = permanent(ENDPOINT).content
    text = content if isinstance(content, str) else json.dump_text(content)
    assert all(fact in text for fact in (ENDPOINT.url, ENDPOINT.model, "65536"))


def test_the_api_key_for_codex_is_in_an_environment_variable_and_not_in_its_file() -> None:
    codex = AGENTS["codex"]
    assert codex.permanent is not None
    content = codex.permanent(ENDPOINT).content
    assert isinstance(content, str)
    assert "sk-1" not in content
    assert codex.profile(ENDPOINT).environment == {"TEMPER_KEY": "sk-1"}
    assert tomllib.loads(content)["model_providers"]["temper"]["env_key"] == "TEMPER_KEY"


def test_the_compaction_limit_for_codex_is_below_the_window() -> None:
    arguments = AGENTS["codex"].profile(ENDPOINT).arguments
    assert "model_auto_compact_token_limit=52428" in arguments


def test_the_output_of_as_toml_is_parsed_to_the_same_values() -> None:
    values: JsonObject = {"a": 'quotes " and \\', "b": 1, "t": {"c": True, "u": {"d": [1, 2]}}}
    assert tomllib.loads(as_toml(values)) == values
