import asyncio
import re
import signal
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.conversation import json
from temper_evals.simulated.profiles import load_profile
from temper_evals.simulated.server import SimulatedServer, serve
from temper_evals.tune_command import advise_minutes, tune
from tests.fakes.command import temper as command
from tests.fakes.invoked import config, document, temper
from tests.timeouts import TIMEOUT_SECONDS

NAMES = ["respond", "close_out always", "close_out always, two tries"]
NATIVE = ["tools in the prompt, as hermes", *NAMES]
EAGER = """
name = "eager"
title = "A model that knows efforts"
sources = ["https://example.org/eager"]
[match]
names = ["nobody"]
[calls]
tools = "react"
[reasoning]
efforts = ["high", "low"]
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@contextmanager
def simulated() -> Iterator[str]:
    """Serve a simulated model in a thread, because the command runs an event loop here."""
    ready, over = threading.Event(), threading.Event()
    urls: list[str] = []

    async def work() -> None:
        async with serve(SimulatedServer(load_profile("healthy"), 0.0)) as url:
            urls.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert ready.wait(TIMEOUT_SECONDS)
        yield urls[0]
    finally:
        over.set()
        thread.join()


def test_tune_prints_verdicts_and_writes_a_file_with_the_keys_of_the_model() -> None:
    with simulated() as url:
        done = temper("tune", "--backend-url", url, "--minutes", "0")
    assert done.exit_code == 0
    assert [f"{name}: not tried: off" in done.stdout for name in NATIVE] == [True] * 4
    (path,) = Path("cache/temper/tuned").glob("*.toml")
    earned_file = tomllib.loads(path.read_text(encoding="utf-8"))
    assert earned_file["keys"].keys() == {"model", "template", "engine", "guardrails"}
    assert (earned_file["guardrails"], earned_file["profile"]) == ({}, {})


def test_the_file_of_an_earlier_tune_is_unchanged_if_no_case_was_finished() -> None:
    with simulated() as url:
        assert temper("tune", "--backend-url", url, "--minutes", "0").exit_code == 0
        (path,) = Path("cache/temper/tuned").glob("*.toml")
        earned = path.read_text(encoding="utf-8").replace("[guardrails]", "[guardrails]\na = 1")
        path.write_text(earned, encoding="utf-8")
        done = temper("tune", "--backend-url", url, "--minutes", "0")
    assert "Unchanged: " in done.stdout
    assert path.read_text(encoding="utf-8") == earned


def test_tune_with_dry_run_writes_no_file() -> None:
    with simulated() as url:
        done = temper("tune", "--backend-url", url, "--minutes", "0", "--dry-run", "--json")
    report = document(done)
    assert report["written"] is None
    assert names_in(report) == NATIVE
    assert not [*Path("cache/temper/tuned").glob("*.toml")]


def names_in(report: json.JsonObject) -> list[json.JsonValue]:
    verdicts = report["verdicts"]
    assert isinstance(verdicts, list)
    return [verdict["name"] for verdict in verdicts if isinstance(verdict, dict)]


def test_efforts_of_the_profile_are_tried_unless_effort_is_configured() -> None:
    Path("own").mkdir()
    Path("own/eager.toml").write_text(EAGER, encoding="utf-8")
    flags = ("--minutes", "0", "--dry-run", "--json")
    with simulated() as url:
        file = config('[profile]\nname = "eager"\nfolder = "own"\n')
        done = temper("tune", "--backend-url", url, *flags, "--config", file)
        assert names_in(document(done)) == ["effort low", "effort high", *NAMES]
        profile = 'effort = "low"\ntools_in_prompt = "never"\n'
        file = config(f'[profile]\nname = "eager"\nfolder = "own"\n{profile}')
        done = temper("tune", "--backend-url", url, *flags, "--config", file)
        assert names_in(document(done)) == NAMES


def test_a_setting_from_an_earlier_tune_is_tried_again() -> None:
    flags = ("--minutes", "0")
    with simulated() as url:
        assert temper("tune", "--backend-url", url, *flags).exit_code == 0
        (path,) = Path("cache/temper/tuned").glob("*.toml")
        earned = path.read_text(encoding="utf-8").replace(
            "[profile]", '[profile]\ntools_in_prompt = "hermes"'
        )
        path.write_text(earned, encoding="utf-8")
        done = temper("tune", "--backend-url", url, *flags, "--json")
    assert names_in(document(done)) == NATIVE


def test_a_setting_in_the_configuration_file_is_not_tuned() -> None:
    file = config('[guardrails]\nclose_out = "off"\n')
    done = temper("tune", "--profile", "healthy", "--minutes", "0", "--config", file)
    assert "close_out always" not in done.stdout
    assert "Kept from your settings: close_out = off" in done.stdout
    assert "Written" not in done.stdout


def tune_until_ctrl_c(*flags: str, when: Callable[[bytes], bool]) -> tuple[bytes, str]:
    """Start `temper tune`, send SIGINT when `when(runs)` is true; return runs and stderr."""
    runs = Path("cache/temper/tuned/runs")

    def stored_runs() -> bytes:
        return b"".join(file.read_bytes() for file in runs.rglob("runs.jsonl"))

    with command("tune", "--profile", "healthy", "--minutes", "60", *flags) as process:
        while not when(stored_runs()) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, errors
    return stored_runs(), errors


@pytest.mark.deep
def test_after_ctrl_c_tune_starts_again_unless_the_flag_resume_is_set() -> None:
    first_runs, errors = tune_until_ctrl_c(when=lambda runs: runs.count(b"\n") > 1)
    assert re.fullmatch(
        r"Stopped after \d+ cases\. To continue, add --resume to the same command\.\n", errors
    )
    assert {json.parse(line)["bed"] for line in first_runs.splitlines()} == {"healthy"}  # type: ignore[call-overload, index]
    resumed_runs, _ = tune_until_ctrl_c("--resume", when=lambda runs: len(runs) > len(first_runs))
    assert resumed_runs.startswith(first_runs)
    new_runs, _ = tune_until_ctrl_c(
        when=lambda runs: bool(runs) and not runs.startswith(first_runs)
    )
    assert not new_runs.startswith(first_runs)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--model", "some.gguf"), "the model file some.gguf does not exist"),
        (
            ("--model", "some.gguf", "--backend-url", "http://127.0.0.1:9"),
            "remove --backend-url",
        ),
        (("--model", "some.gguf", "--ollama", "qwen3"), "remove --ollama"),
        (("--model", "qwen3"), "no file qwen3, and no running server"),
        (("--backend-url", "http://127.0.0.1:9"), "--backend-url: no server answers"),
        (("--ollama", "qwen3"), "--ollama: no server answers"),
    ],
)
def test_the_error_for_a_missing_model_or_server_names_only_existing_flags(
    flags: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setattr("proxy.serving.opening.likely_urls", lambda _host: ("http://127.0.0.1:9",))
    done = temper("tune", *flags)
    assert done.exit_code == 1
    assert problem in done.stderr
    known = {flag for param in tune.params for flag in param.opts}
    assert {*re.findall(r"--[a-z][a-z-]*", done.stderr)} <= known


def test_tune_without_a_server_proposes_the_flags_backend_url_and_model_and_ollama(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.serving.opening.likely_urls", lambda _host: ("http://127.0.0.1:9",))
    done = temper("tune")
    proposed = re.findall(r"temper tune (--[a-z-]+)", done.stderr)
    assert proposed == ["--backend-url", "--model", "--ollama"]
    assert {*proposed} <= {flag for param in tune.params for flag in param.opts}


@pytest.mark.parametrize("flag", ["--backend-model", "--model"])
def test_a_model_that_the_server_does_not_list_is_refused(flag: str) -> None:
    with simulated() as url:
        done = temper("tune", "--backend-url", url, flag, "nobody", "--minutes", "0")
    assert done.exit_code == 1
    assert "has no 'nobody'" in done.stderr


def test_tune_with_ollama_uses_the_server_in_ollama_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated() as url:
        monkeypatch.setenv("OLLAMA_HOST", url)
        done = temper("tune", "--ollama", "simulated", "--minutes", "0", "--dry-run", "--json")
    assert done.exit_code == 0, done.stderr
    assert names_in(document(done))[-3:] == NAMES


def test_if_the_time_was_too_short_tune_says_which_value_for_minutes_to_pass() -> None:
    done = temper("tune", "--profile", "healthy", "--minutes", "0")
    message = "too short to finish a case with and without a setting. Pass --minutes 1."
    assert message in " ".join(done.stdout.split())
    assert advise_minutes(10, 601) == (
        "The time was too short to decide everything; undecided settings are off. "
        "To continue, pass --resume --minutes 11."
    )


@pytest.mark.parametrize("name", ["nobody", "healthy@nowhere"])
def test_the_error_for_an_unknown_profile_lists_the_known_profiles(name: str) -> None:
    done = temper("tune", "--profile", name)
    assert done.exit_code == 1
    assert "known: " in done.stderr
