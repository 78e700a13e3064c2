import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from proxy.cli.signals import (
    ENDING,
    INTERRUPTED,
    ending_signals,
    exit_when_signalled,
    keep_handlers,
)
from tests.timeouts import TIMEOUT_SECONDS

SWALLOWING = """
import os, signal
from proxy.cli.signals import exit_when_signalled

exit_when_signalled()
try:
    os.kill(os.getpid(), signal.SIG{0})
    print("still here")
except BaseException:
    print("caught")
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    with keep_handlers():
        yield


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_ends_a_process_even_if_it_catches_all_exceptions(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWING.format(name)],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, b"", b"")


def test_signals_ignored_by_a_background_shell_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert ending_signals() == (signal.SIGTERM,)
    exit_when_signalled()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def test_signal_handlers_are_restored_after_a_block_with_keep_handlers() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with keep_handlers():
        exit_when_signalled()
        assert [signal.getsignal(number) for number in ENDING] != before
    assert [signal.getsignal(number) for number in ENDING] == before
