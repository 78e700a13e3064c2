import asyncio
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.conversation import json
from temper_evals.simulated.profiles import load_profile
from temper_evals.simulated.server import SimulatedServer, serve
from tests.fakes.invoked import config, document, temper
from tests.patience import PATIENCE_SECONDS

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
    """Serve a simulated model beside the command, which has an event loop of its own."""
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
        assert ready.wait(PATIENCE_SECONDS)
        yield urls[0]
    finally:
        over.set()
        thread.join()


def test_verdicts_are_told_and_what_was_earned_is_written_with_what_it_depends_on() -> None:
    with simulated() as url:
        done = temper("tune", "--backend-url", url, "--minutes", "0")
    assert done.exit_code == 0
    assert [f"{name}: not tried: off" in done.stdout for name in NATIVE] == [True] * 4
    (path,) = Path("cache/temper/tuned").glob("*.toml")
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    assert written["keys"].keys() == {"model", "template", "engine", "guardrails"}
    assert (written["guardrails"], written["profile"]) == ({}, {})


def test_a_dry_run_writes_nothing() -> None:
    with simulated() as url:
        done = temper("tune", "--backend-url", url, "--minutes", "0", "--dry-run", "--json")
    told = document(done)
    assert told["written"] is None
    assert names_in(told) == NATIVE
    assert not [*Path("cache/temper/tuned").glob("*.toml")]


def names_in(told: json.JsonObject) -> list[json.JsonValue]:
    verdicts = told["verdicts"]
    assert isinstance(verdicts, list)
    return [one["name"] for one in verdicts if isinstance(one, dict)]


def test_efforts_are_tried_where_a_profile_knows_them_and_tools_where_the_engine_takes_them() -> (
    None
):
    Path("own").mkdir()
    Path("own/eager.toml").write_text(EAGER, encoding="utf-8")
    flags = ("--minutes", "0", "--dry-run", "--json")
    with simulated() as url:
        file = config('[profile]\nname = "eager"\nfolder = "own"\n')
        done = temper("tune", "--backend-url", url, *flags, "--config", file)
        assert names_in(document(done)) == ["effort low", "effort high", *NAMES]
        own = 'effort = "low"\ntools_in_prompt = "never"\n'
        file = config(f'[profile]\nname = "eager"\nfolder = "own"\n{own}')
        done = temper("tune", "--backend-url", url, *flags, "--config", file)
        assert names_in(document(done)) == NAMES


def test_what_was_earned_before_is_tried_again() -> None:
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


def test_what_the_settings_say_is_left_alone() -> None:
    file = config('[guardrails]\nclose_out = "off"\n')
    done = temper("tune", "--profile", "healthy", "--minutes", "0", "--config", file)
    assert "close_out always" not in done.stdout
    assert "Left as your settings have it: close_out = off" in done.stdout
    assert "Written" not in done.stdout


def test_runs_are_kept_for_the_next_time_and_begun_afresh_without_resume() -> None:
    flags = ("tune", "--profile", "healthy", "--minutes", "0.001")
    assert temper(*flags).exit_code == 0
    (file,) = Path("cache/temper/tuned/runs").rglob("runs.jsonl")
    kept = file.read_bytes()
    assert kept
    assert temper(*flags, "--resume").exit_code == 0
    assert file.read_bytes().startswith(kept)
    assert {json.parse(line)["bed"] for line in kept.splitlines()} == {"healthy"}  # type: ignore[call-overload, index]


@pytest.mark.parametrize("name", ["nobody", "healthy@nowhere"])
def test_a_model_that_nobody_knows_is_refused_with_those_there_are(name: str) -> None:
    done = temper("tune", "--profile", name)
    assert done.exit_code == 1
    assert "known: " in done.stderr
