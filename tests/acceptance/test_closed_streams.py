"""Temper with closed standard streams: some process supervisors start programs in this way."""

import subprocess
import sys

import pytest

from tests.examples import mostly_deep
from tests.timeouts import TIMEOUT_SECONDS

CLOSED_PORT = "http://127.0.0.1:9"


@pytest.mark.parametrize("closing", mostly_deep(["<&- >&- 2>&-", "<&-", ">&-", "<&- >&-"]))
def test_with_closed_standard_streams_the_command_still_exits_with_its_code(closing: str) -> None:
    temper = [sys.executable, "-m", "proxy", "models", "--backend-url", CLOSED_PORT]
    shell = ["sh", "-c", f'exec "$@" {closing}', "sh", *temper]
    ended = subprocess.run(shell, check=False, timeout=TIMEOUT_SECONDS, capture_output=True)
    assert ended.returncode == 1
    assert b"Assertion" not in ended.stderr
