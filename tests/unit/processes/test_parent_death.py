import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[3]

# Becomes a program that says hello and then does what the argument says, watched as on systems
# without a parent-death signal.
WATCHED_SCRIPT = """
import os, sys
from proxy.processes import parent_death
parent_death.start_watcher()
os.execv(sys.executable, [sys.executable, "-c", "print('hello', flush=True); " + sys.argv[1]])
"""


def start_watched(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WATCHED_SCRIPT, script],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_watched_program_is_killed_when_its_input_ends() -> None:
    with start_watched("import signal; signal.pause()") as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "hello\n"
        program.stdin.close()
        assert program.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_the_watcher_closes_the_output_of_its_program() -> None:
    with start_watched("") as program:
        assert program.stdout is not None
        assert program.stdout.read() == "hello\n"
        assert program.wait(PATIENCE_SECONDS) == 0


def test_a_program_is_killed_if_its_parent_has_died_before() -> None:
    script = "from proxy.processes import parent_death; parent_death.request_death_signal(-1)"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=REPOSITORY, check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == -signal.SIGKILL


def test_a_program_that_cannot_be_run_is_an_error() -> None:
    command = [
        sys.executable,
        "-m",
        "proxy.processes.parent_death",
        str(os.getpid()),
        "/nowhere/program",
    ]
    ended = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "cannot run /nowhere/program: No such file or directory\n"
