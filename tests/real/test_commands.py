"""The commands as a user runs them on a model file, with short settings."""

import os
import subprocess
import tomllib
from pathlib import Path

import httpx

from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.fakes.command import running_temper
from tests.fakes.quick_start import COMMAND
from tests.real.conftest import CHAT, GENERATION_SECONDS
from tests.real.conversations import TOOLS
from tests.real.models import RealModel

TASK = """
user = "Is it warm in Oslo?"
limit = 4

[[tool]]
name = "get_weather"
description = "Get the current weather of a city."
schema = { type = "object", properties = { city = { type = "string" } }, required = ["city"] }
[[tool.result]]
arguments = { city = "Oslo" }
returns = { degrees = 21 }

[expect]
calls = [{ name = "get_weather", arguments = { city = "Oslo" } }]
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `temper` to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=GENERATION_SECONDS,
        check=False,
    )


def test_serve_starts_a_model_file_and_answers(model: RealModel) -> None:
    flags = ("--model", str(model.path), "--context-tokens", "4096", "--slots", "1")
    body = {
        "model": "default",
        "temperature": 0,
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "What is the weather in Paris? Use the tool."}],
        "tools": TOOLS,
        "tool_choice": "required",
    }
    with (
        running_temper(*flags, environment={}) as url,
        httpx.Client(base_url=url, timeout=GENERATION_SECONDS, trust_env=False) as client,
    ):
        response = client.post(CHAT, json=body)
        assert response.status_code == 200, response.text
        (choice,) = response.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"


def test_doctor_exits_with_0_for_a_running_server(server: RunningServer) -> None:
    done = run("doctor", "--backend-url", server.base_url, TEMPER_BACKEND__API_KEY=server.api_key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_eval_measures_a_scenario_file_of_the_user(model: RealModel, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "oslo.toml").write_text(TASK, encoding="utf-8")
    records = tmp_path / "records"
    done = run(
        *("eval", "--model", str(model.path), "--scenarios", str(tmp_path / "tasks")),
        *("--family", "own", "--arms", "direct,temper", "--output", str(records)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.parse(line) for line in (records / "runs.jsonl").read_bytes().splitlines()]
    assert {run["arm"] for run in runs if isinstance(run, dict)} == {"direct", "temper"}
    assert "temper" in done.stdout


def test_tune_of_a_model_file_prints_its_decisions(model: RealModel, tmp_path: Path) -> None:
    done = run(
        *("tune", "--model", str(model.path), "--minutes", "2"), XDG_CACHE_HOME=str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "respond" in done.stdout
    for file in tmp_path.rglob("tuned/*.toml"):
        tomllib.loads(file.read_text(encoding="utf-8"))


def test_tune_of_a_running_server_prints_its_decisions(
    model: RealModel, server: RunningServer, tmp_path: Path
) -> None:
    done = run(
        *("tune", "--backend-url", server.base_url, "--minutes", "1", "--dry-run"),
        TEMPER_BACKEND__API_KEY=server.api_key,
        XDG_CACHE_HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "respond" in done.stdout
    assert [*tmp_path.rglob("tuned/*.toml")] == []
