"""`temper pull` and `temper serve --hf` through a llama-server that can download."""

import re
import signal
from pathlib import Path

import pytest

from proxy.conversation import json
from tests.fakes.command import processes_with, temper
from tests.fakes.downloading_server import downloading_server
from tests.fakes.llama import build_model
from tests.fakes.pseudo_terminal import on_terminal
from tests.timeouts import TIMEOUT_SECONDS

REPOSITORY = "owner/name:Q4_K_M"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    return downloading_server(folder, build_model(folder / "source.gguf"))


def test_pull_shows_a_progress_bar_and_prints_the_path_of_the_model(program: Path) -> None:
    environment = {"TEMPER_MODEL__SERVER": str(program)}
    closed = program.parent / "closed"
    closed.touch()
    with on_terminal(80, "pull", REPOSITORY, environment=environment) as command:
        command.read_until(rf"downloading {REPOSITORY} .* 37% +\d+ s")
        closed.unlink()
        shown = command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0
    assert f"Downloaded {REPOSITORY} to {program.parent / 'm.gguf'}" in " ".join(shown.split())
    assert processes_with(str(program.parent)) == []


def test_json_output_of_pull_has_only_the_path(program: Path) -> None:
    with temper("pull", REPOSITORY, "--json", TEMPER_MODEL__SERVER=str(program)) as process:
        output, errors = process.communicate()
    path = str(program.parent / "m.gguf")
    assert json.parse(output) == {"ok": True, "model": REPOSITORY, "path": path}
    assert "llama-server: downloading" in errors


def test_pulling_an_unknown_repository_is_an_error_with_a_remedy(program: Path) -> None:
    with temper("pull", "nobody/none", TEMPER_MODEL__SERVER=str(program)) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "could not download the model: check hf_repo and the network" in errors


def test_serve_hf_downloads_the_model_and_serves_it(program: Path) -> None:
    serve = ("serve", "--hf", REPOSITORY, "--port", "0")
    environment = {"TEMPER_MODEL__SERVER": str(program)}
    with on_terminal(80, *serve, environment=environment) as command:
        command.read_until(r"ready at http://[^ ]+/v1 \(name, loaded in [0-9.]+ s\)")
        command.process.send_signal(signal.SIGTERM)
        shown = command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0
    assert re.search("(?:starting|loading) name", shown)


def test_serve_hf_exits_with_an_error_if_the_download_stalls(program: Path) -> None:
    closed = program.parent / "closed"
    closed.touch()
    environment = {"TEMPER_MODEL__SERVER": str(program), "TEMPER_MODEL__LOAD_SECONDS": "2"}
    try:
        with temper("serve", "--hf", REPOSITORY, "--port", "0", **environment) as process:
            _, errors = process.communicate()
    finally:
        closed.unlink()
    assert process.returncode == 1
    assert "was not ready after 2 seconds" in errors
    assert processes_with(str(program.parent)) == []
