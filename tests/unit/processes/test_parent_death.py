import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.timeouts import TIMEOUT_SECONDS

REPOSITORY = Path(__file__).parents[3]

# Starts a watcher, as on systems without a parent-death signal, and then becomes a program that
# prints hello and runs the script in its argument.
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


def test_a_watched_program_is_killed_when_its_stdin_is_closed() -> None:
    with start_watched("import signal; signal.pause()") as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "hello\n"
        program.stdin.close()
        assert program.wait(TIMEOUT_SECONDS) == -signal.SIGKILL


def test_the_watcher_does_not_keep_the_stdout_of_the_program_open() -> None:
    with start_watched("") as program:
        assert program.stdout is not None
        assert program.stdout.read() == "hello\n"
        assert program.wait(TIMEOUT_SECONDS) == 0


def test_request_death_signal_kills_the_process_if_the_parent_has_already_died() -> None:
    script = "from proxy.processes import parent_death; parent_death.request_death_signal(-1)"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=REPOSITORY, check=False, timeout=TIMEOUT_SECONDS)
    assert ended.returncode == -signal.SIGKILL


def test_a_missing_program_exits_with_code_1_and_a_message() -> None:
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
