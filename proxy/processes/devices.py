"""Whether a llama-server can use a GPU: many builds are for the processor alone."""

import subprocess
from collections.abc import Sequence

FLAG = "--list-devices"
TITLE = "Available devices:"

_SECONDS = 10.0  # drivers are loaded for it


def uses_devices(program: Sequence[str]) -> bool:
    """Ask a llama-server for its devices; one that does not answer is believed to have some."""
    try:
        result = subprocess.run(  # noqa: S603 - the program that is about to be started
            (*program, FLAG), capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True
    said = result.stdout.decode(errors="replace")
    if result.returncode != 0 or TITLE not in said:
        return True
    return bool(said.partition(TITLE)[2].strip())
