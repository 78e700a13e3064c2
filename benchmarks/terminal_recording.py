"""Records a terminal session as the README's picture: the demonstration, and some requests.

python -m benchmarks.terminal_recording docs/terminal.svg

The commands run in a pseudo terminal, and the final content of its screen is drawn.
"""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import httpx
from rich.console import Console
from rich.text import Text

from temper_evals.demo.scenarios import SCENARIOS, SCRIPTS, request_for
from temper_evals.demo.scripted_model import build_scripted_model

_COLUMNS = 100
_LARGEST = 100_000  # bytes, because the picture is in the repository
_SILENCE = 120.0  # seconds after which a command has hung
_READY = re.compile(r"ready at (http://[^ /]+)/v1")
_CONTROL_SEQUENCE = re.compile(r"\x1b\[(?P<count>\d*)(?P<what>[AK])|\x1b\[\?25[lh]|\r")
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main(path: Path) -> None:
    """Record the session into a file."""
    with tempfile.TemporaryDirectory() as folder:
        build_scripted_model(Path(folder) / "demo.gguf", SCRIPTS, context_tokens=8192)
        demonstrated = record_session(("demo", "--once"), folder)
        served = record_session(("serve", "--model", "demo.gguf"), folder, send_prompts)
    session = [prompt("demo --once"), *demonstrated, "", prompt("serve --model demo.gguf"), *served]
    picture = draw(session)
    if len(picture.encode()) > _LARGEST:
        sys.exit(f"the picture has {len(picture.encode())} bytes, more than {_LARGEST}")
    path.write_text(picture, encoding="utf-8")


def record_session(
    arguments: Sequence[str], folder: str, when_ready: Callable[[str], None] | None = None
) -> list[str]:
    """Run `temper` on a terminal; returns the final lines of its screen, with colors.

    When the command prints its address, `when_ready` is called with the address, and Ctrl-C is
    sent.
    """
    terminal, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(Path.cwd())}
    for name in ("NO_COLOR", "COLUMNS"):
        environment.pop(name, None)
    process = subprocess.Popen(  # noqa: S603 - the recorded command
        [sys.executable, "-m", "proxy", *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(child)
    output, reading = "", codecs.getincrementaldecoder("utf-8")("replace")
    while piece := _read(terminal):
        output += reading.decode(piece)
        if when_ready is not None and (match := _READY.search(output)):
            when_ready(match[1])
            when_ready = None
            process.send_signal(signal.SIGINT)
    os.close(terminal)
    process.wait()
    return final_lines(output)


def final_lines(output: str) -> list[str]:
    """Return the final lines of a screen, without overwritten progress bars and spinners."""
    lines, row = [""], 0
    for line in output.split("\n"):
        if row == len(lines):
            lines.append("")
        end = 0
        for sequence in _CONTROL_SEQUENCE.finditer(line):
            lines[row] += line[end : sequence.start()]
            end = sequence.end()
            if sequence["what"] == "A":
                row = max(0, row - int(sequence["count"] or 1))
            elif sequence["what"] == "K" or (sequence[0] == "\r" and end < len(line)):
                lines[row] = ""
        lines[row] += line[end:]
        row += 1
    return "\n".join(lines).rstrip().split("\n")


def prompt(command: str) -> str:
    return f"\x1b[32m$\x1b[0m \x1b[1mtemper {command}\x1b[0m"


def send_prompts(url: str) -> None:
    """Send the prompts of the demonstration."""
    with httpx.Client(timeout=_SILENCE, trust_env=False) as client:
        for scenario in SCENARIOS:
            body = {**request_for(scenario.prompt), "model": "demo"}
            client.post(f"{url}/v1/chat/completions", json=body).raise_for_status()


def draw(lines: Sequence[str]) -> str:
    """Draw lines as an SVG image that refers to no other files."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    return _FONT.sub("", console.export_svg(title="temper", unique_id="temper"))


def _read(terminal: int) -> bytes:
    """Return more output of a command; b"" after its end."""
    readable, _, _ = select.select([terminal], [], [], _SILENCE)
    if not readable:
        raise TimeoutError(f"nothing was shown for {_SILENCE:g} seconds")
    try:
        return os.read(terminal, 65536)
    except OSError:  # the command has closed its end of the terminal
        return b""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
