"""Parses the progress of a llama-server's start from its output. No I/O.

Downloading qwen3-8b-q4_k_m.gguf ──────── 42%    -> downloading, 0.42
..........                                       -> loading, 0.1
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

_DOTS = 100  # some builds of llama.cpp write a dot for each percent of the loaded model
_DOWNLOAD = re.compile(r"Downloading (?P<file>\S+).*?(?P<percent>\d{1,3})%")
# older builds show curl's progress table: "  12 1024M   12  128M    0     0  10.2M      0 ..."
_CURL = re.compile(r"\s*(?P<percent>\d{1,3})\s+[\d.]+[kMGT]?\s+\d{1,3}\s+[\d.]+[kMGT]?\s+\d")
_LOADING = re.compile(r"loading model(?: '(?P<path>.+)')?")

# The stages of a start; "failed" may follow any other stage
StartStage: TypeAlias = Literal["starting", "downloading", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class StartProgress:
    """The progress of the start of a server for the model `name`."""

    name: str
    stage: StartStage
    share: float | None = None  # progress of the stage, from 0 to 1; None if unknown


StageListener: TypeAlias = Callable[[StartProgress], None]


class StartLog:
    """Follows a server's output, from the first line until it is ready."""

    def __init__(self, name: str) -> None:
        self.progress = StartProgress(name, "starting")
        self.path = ""

    def read(self, line: str) -> StartProgress | None:
        """Read a line, or a growing row of dots; return the progress if it has changed.

        Sets `path` to the file of the model if the line reports it.
        """
        stage, share = self.progress.stage, self.progress.share
        if match := _DOWNLOAD.search(line) or _CURL.match(line):
            stage, share = "downloading", min(1.0, int(match["percent"]) / 100)
        elif loading := _LOADING.search(line):
            stage, share = "loading", None
            self.path = loading["path"] or self.path
        elif line and line.strip(".") == "":
            stage, share = "loading", min(1.0, len(line) / _DOTS)
        progress = StartProgress(self.progress.name, stage, share)
        if progress == self.progress:
            return None
        self.progress = progress
        return progress
