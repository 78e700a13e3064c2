"""The startup output on terminals of several widths and without one."""

import logging
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from proxy.api.server import PublicAddress
from proxy.cli.terminal import Terminal, open_terminal
from proxy.processes.start_progress import StartProgress

ADDRESS = PublicAddress("http://127.0.0.1:8367", "llama-server/qwen3")
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def console(columns: int, *, is_terminal: bool = True) -> Console:
    return Console(
        file=StringIO(),
        force_terminal=is_terminal,
        width=columns,
        highlight=False,
        legacy_windows=False,
        get_time=lambda: 0.0,
    )


def output_of(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return CODES.sub("", console.file.getvalue())


def start(terminal: Terminal, name: str = "qwen3") -> None:
    terminal.follow(StartProgress(name, "starting"))
    terminal.follow(StartProgress(name, "loading"))


def next_tick() -> float:
    return next(TICKS)


TICKS = (float(second) for second in range(10_000))


@pytest.mark.parametrize("columns", [80, 40])
def test_a_line_with_the_address_is_printed_after_the_model_has_loaded(columns: int) -> None:
    terminal_console = console(columns)
    with Terminal(terminal_console, clock=next_tick) as terminal:
        start(terminal)
        terminal.serve(ADDRESS, awaits_model=True)
        assert "ready" not in output_of(terminal_console)
        terminal.follow(StartProgress("qwen3", "loading", 0.42))
        terminal.follow(StartProgress("qwen3", "ready"))
    lines = output_of(terminal_console).splitlines()
    assert lines[-1].endswith("ready at http://127.0.0.1:8367/v1 (qwen3, loaded in 1.0 s)")


@pytest.mark.parametrize("columns", [80, 40])
def test_the_progress_bar_fits_the_terminal(columns: int) -> None:
    terminal_console = console(columns)
    with Terminal(terminal_console) as terminal:
        start(terminal, "a-model-with-a-long-name-" * 5)
        terminal.follow(StartProgress("a-model-with-a-long-name-" * 5, "loading", 0.42))
    frames = [line for line in re.split(r"[\r\n]", output_of(terminal_console)) if line.strip()]
    assert frames
    assert all(len(frame) <= columns for frame in frames)
    assert "42%" in frames[-1]
    assert frames[-1].rstrip().endswith("0 s")


def test_the_address_is_printed_if_the_model_was_ready_before_the_server() -> None:
    terminal_console = console(80)
    with Terminal(terminal_console) as terminal:
        start(terminal)
        terminal.follow(StartProgress("qwen3", "ready"))
        terminal.serve(ADDRESS, awaits_model=True)
    assert output_of(terminal_console).endswith(
        "ready at http://127.0.0.1:8367/v1 (llama-server/qwen3)\n"
    )


def test_the_next_steps_are_printed_after_the_address_only_on_a_terminal() -> None:
    for is_terminal in (True, False):
        terminal_console = console(80, is_terminal=is_terminal)
        with Terminal(terminal_console) as terminal:
            terminal.next_steps = ("Try it",)
            terminal.listen(ADDRESS)
            assert output_of(terminal_console) == "listening at http://127.0.0.1:8367/v1\n"
            terminal.serve(ADDRESS, awaits_model=False)
        assert output_of(terminal_console).splitlines()[2:] == ["Try it"] * is_terminal


def test_the_address_of_a_running_server_is_printed_at_once() -> None:
    terminal_console = console(80)
    with Terminal(terminal_console) as terminal:
        terminal.serve(ADDRESS, awaits_model=False)
    assert output_of(terminal_console) == "ready at http://127.0.0.1:8367/v1 (llama-server/qwen3)\n"


def test_only_a_model_that_became_ready_is_reported_as_loaded() -> None:
    terminal_console = console(80)
    with Terminal(terminal_console) as terminal:
        start(terminal, "first")
        start(terminal, "second")
        terminal.follow(StartProgress("first", "failed"))
        terminal.follow(StartProgress("second", "ready"))
    assert "second, loaded in" in output_of(terminal_console).splitlines()[-1]
    assert "first, loaded" not in output_of(terminal_console)


def test_markup_in_names_is_printed_literally() -> None:
    terminal_console = console(80)
    with Terminal(terminal_console) as terminal:
        terminal.write("[bold]plain[/bold]")
        start(terminal, "[red]x")
    assert "[bold]plain[/bold]" in output_of(terminal_console)
    assert "loading [red]x" in output_of(terminal_console)


def test_a_pipe_gets_a_line_per_stage_and_no_progress_bar() -> None:
    terminal_console = console(80, is_terminal=False)
    with Terminal(terminal_console) as terminal:
        terminal.serve(ADDRESS, awaits_model=True)
        start(terminal)
        terminal.follow(StartProgress("qwen3", "loading", 0.5))
        terminal.follow(StartProgress("qwen3", "ready"))
    assert isinstance(terminal_console.file, StringIO)
    lines = terminal_console.file.getvalue().splitlines()
    assert lines[:-1] == ["llama-server: starting", "llama-server: loading", "llama-server: ready"]
    assert lines[-1].startswith("ready at http://127.0.0.1:8367/v1 (qwen3, loaded in ")


def test_the_output_consists_of_log_lines_if_logs_are_json(
    caplog: pytest.LogCaptureFixture,
) -> None:
    terminal_console = console(80, is_terminal=False)
    with caplog.at_level(logging.INFO), Terminal(terminal_console, logs_events=True) as terminal:
        terminal.write("Found a server.")
    assert output_of(terminal_console) == ""
    assert caplog.messages == ["Found a server."]


def test_lines_are_printed_on_standard_error_if_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for forced in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(forced, raising=False)
    with open_terminal(logs_events=False) as terminal:
        start(terminal)
        terminal.serve(ADDRESS, awaits_model=False)
    assert capsys.readouterr().err.splitlines() == [
        "llama-server: starting",
        "llama-server: loading",
        f"ready at {ADDRESS.url}/v1 ({ADDRESS.backend})",
    ]


def test_importing_the_cli_does_not_import_rich() -> None:
    script = "import sys, proxy.cli.commands, proxy.cli.terminal; sys.exit('rich' in sys.modules)"
    subprocess.run((sys.executable, "-c", script), check=True)
