"""The checks for a client, with a server that has at most one defect."""

import tomllib
from dataclasses import replace

import httpx
import pytest

from proxy.cli.app import CLIENTS as OFFERED
from proxy.conversation.json import JsonObject
from proxy.doctor.clients import CLIENTS
from proxy.doctor.target import Finding, Severity, Target
from proxy.profiles.known_model import Overrides, identify_model
from proxy.profiles.recognition import Evidence
from proxy.settings import Settings
from tests.fakes.ailing import WINDOW, Ailment, examined


async def run_checks(
    name: str, ailment: Ailment = Ailment.NONE, settings: JsonObject | None = None
) -> dict[str, Finding]:
    return await examined(ailment, settings, CLIENTS[name])


def environment(copied: str) -> dict[str, str]:
    words = [line.removeprefix("export ").partition("=") for line in copied.splitlines()]
    return {name: value for name, _, value in words}


def test_the_command_line_accepts_exactly_the_known_clients() -> None:
    assert tuple(CLIENTS) == OFFERED


@pytest.mark.parametrize("name", CLIENTS)
async def test_the_checks_of_a_client_use_its_api_path(name: str) -> None:
    results = await run_checks(name)
    title = CLIENTS[name].title
    assert results[f"{title} answer"].status == "ok", results
    assert results[f"{title} call"].status == "ok", results
    assert CLIENTS[name].path in results[f"{title} answer"].summary


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(
    ("ailment", "check", "summaries"),
    [
        (Ailment.NEVER_CALLS, "call", "no valid call|a streamed call failed"),
        (Ailment.BREAKS_OFF, "call", "a streamed call failed"),
        (Ailment.BREAKS_OFF, "answer", "closed the connection|failed"),
    ],
)
async def test_a_server_without_valid_calls_or_answers_fails_the_check_of_the_client(
    name: str, ailment: Ailment, check: str, summaries: str
) -> None:
    result = (await run_checks(name, ailment))[f"{CLIENTS[name].title} {check}"]
    assert result.status == "fail"
    assert any(text in result.summary for text in summaries.split("|")), result
    assert result.remedy


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_window_nearly_filled_by_the_first_request_gives_a_warning(
    name: str,
) -> None:
    result = (await run_checks(name))[CLIENTS[name].title]
    assert result.status == "warn"
    assert str(WINDOW) in result.summary


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(
    ("model", "window", "status", "summaries"),
    [
        ("local", 32_768, "ok", "32768 tokens"),
        ("local", 32_767, "warn", "32767 tokens"),
        ("local", None, "warn", "unknown"),
        (None, 65_536, "warn", "for a hosted model"),
    ],
)
async def test_a_small_window_or_the_name_of_a_hosted_model_gives_a_warning(
    name: str, model: str | None, window: int | None, status: Severity, summaries: str
) -> None:
    client = CLIENTS[name]
    known = replace(identify_model("", Evidence(), (), Overrides()), window=window)
    async with httpx.AsyncClient() as unused:
        model_name = model or f"{client.prefixes[0]}x"
        result = await client.check_window(
            Target(Settings(), model_name, known, unused, unused, "")
        )
        copied = client.configuration(
            Target(Settings(), model_name, known, unused, unused, ""), window
        )
    assert result.status is status
    assert summaries in result.summary
    assert (str(window) in copied) == (window is not None)


async def test_the_settings_for_claude_code_are_environment_variables() -> None:
    variables = environment((await run_checks("claude-code"))["settings"].copy)
    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8367"
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "none"
    assert variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(WINDOW)
    assert {value for name, value in variables.items() if name.endswith("_MODEL")} == {"tiny"}


async def test_the_settings_for_codex_are_a_toml_configuration() -> None:
    configuration = tomllib.loads((await run_checks("codex"))["settings"].copy)
    assert configuration == {
        "model": "tiny",
        "model_provider": "temper",
        "model_context_window": WINDOW,
        "model_auto_compact_token_limit": WINDOW * 8 // 10,
        "model_providers": {
            "temper": {
                "name": "Temper",
                "base_url": "http://127.0.0.1:8367/v1",
                "wire_api": "responses",
            }
        },
    }


async def test_the_settings_for_a_client_have_a_placeholder_instead_of_the_api_key() -> None:
    locked: JsonObject = {"server": {"api_key": "secret", "host": "::", "port": 1234}}
    claude = (await run_checks("claude-code", settings=locked))["settings"].copy
    codex = (await run_checks("codex", settings=locked))["settings"].copy
    assert environment(claude)["ANTHROPIC_AUTH_TOKEN"] == "A-KEY-OF-TEMPER"
    assert tomllib.loads(codex)["model_providers"]["temper"]["env_key"] == "TEMPER_KEY"
    assert "http://127.0.0.1:1234/v1" in codex
    assert "secret" not in claude + codex
