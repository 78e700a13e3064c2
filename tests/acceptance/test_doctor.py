"""`temper doctor` with a real llama-server."""

import zipfile
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.fakes.command import temper
from tests.fakes.llama import CONTEXT_TOKENS

CHECKS = 12
# On a busy machine these checks may be warnings. Warnings leave the exit code at 0.
LOAD_DEPENDENT = {"open files", "memory"}


def test_doctor_passes_all_checks_of_a_healthy_llama_server(
    llama_server: RunningServer, tmp_path: Path
) -> None:
    key, bundle = llama_server.api_key, tmp_path / "bundle.zip"
    flags = ("--backend-url", llama_server.base_url, "--bundle", str(bundle), "--json")
    with temper("doctor", *flags, TEMPER_BACKEND__API_KEY=key) as doctor:
        output, violations = doctor.communicate()
    report = json.parse(output)
    assert isinstance(report, dict)
    checks = report["checks"]
    assert isinstance(checks, list)
    states = {str(check["check"]): check["status"] for check in checks if isinstance(check, dict)}
    not_ok = {name for name, status in states.items() if status != "ok"}
    assert not_ok <= LOAD_DEPENDENT, output
    assert len(states) >= CHECKS
    assert doctor.returncode == 0, violations
    assert key not in output + violations
    check_tried()
    with zipfile.ZipFile(bundle) as archive:
        assert all(key.encode() not in archive.read(name) for name in archive.namelist())


def check_tried() -> None:
    """Check that the model is in the list of tried models."""
    with temper("models", "--tried", "--json") as listing:
        listed = json.parse(listing.communicate()[0])
    assert isinstance(listed, dict)
    models = listed["models"]
    assert isinstance(models, list)
    (scripted,) = (
        model for model in models if isinstance(model, dict) and model["id"] == "scripted"
    )
    measured = scripted["measured"]
    assert isinstance(measured, dict)
    assert (measured["window"], measured["calls"]) == (CONTEXT_TOKENS, "at once")
    assert isinstance(speed := measured["writes_per_second"], float)
    assert speed > 0
    assert scripted["failed"] == []


@pytest.mark.parametrize(
    ("client", "line"),
    [
        ("claude-code", f"export CLAUDE_CODE_MAX_CONTEXT_TOKENS={CONTEXT_TOKENS}"),
        ("codex", f"model_context_window = {CONTEXT_TOKENS}"),
    ],
)
def test_doctor_tries_the_requests_of_a_client_and_prints_settings_for_the_client(
    llama_server: RunningServer, client: str, line: str
) -> None:
    flags = ("--backend-url", llama_server.base_url, "--client", client)
    with temper("doctor", *flags, TEMPER_BACKEND__API_KEY=llama_server.api_key) as doctor:
        output, complaints = doctor.communicate()
    assert doctor.returncode == 0, output + complaints
    assert line in output.splitlines()
    assert "a streamed call was received completely" in output


def test_without_the_api_key_doctor_exits_with_1_and_names_the_setting(
    llama_server: RunningServer,
) -> None:
    with temper("doctor", "--backend-url", llama_server.base_url) as doctor:
        output, _ = doctor.communicate()
    assert doctor.returncode == 1
    assert "backend.api_key" in output
