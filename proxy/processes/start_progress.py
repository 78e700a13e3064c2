"""How far the start of a llama-server has come, read from what it writes. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

_DOTS = 100  # that llama.cpp writes while it loads, in builds that tell at all
_DOWNLOAD = re.compile(r"Downloading (?P<file>\S+).*?(?P<percent>\d{1,3})%")
# curl's table, as older builds show it: "  12 1024M   12  128M    0     0  10.2M      0 ..."
_CURL = re.compile(r"\s*(?P<percent>\d{1,3})\s+[\d.]+[kMGT]?\s+\d{1,3}\s+[\d.]+[kMGT]?\s+\d")
_LOADING = re.compile(r"loading model(?: '(?P<path>.+)')?")

# How far a start has come; it may fail at any of them
StartStage: TypeAlias = Literal["starting", "downloading", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class StartProgress:
    """How far the start of a server for the model `name` has come."""

    name: str
    stage: StartStage
    share: float | None = None  # of the stage, from 0 to 1, where the server says so


StageListener: TypeAlias = Callable[[StartProgress], None]


class StartLog:
    """Follows what a server writes, from its first line until it is ready."""

    def __init__(self, name: str) -> None:
        self.progress = StartProgress(name, "starting")
        self.path = ""

    def read(self, line: str) -> StartProgress | None:
        """Read a line, or a growing row of dots; returns the progress if it has changed.

        From the moment at which a model is loaded, `path` is where it lies, if that was told.
        """
        stage, share = self.progress.stage, self.progress.share
        if said := _DOWNLOAD.search(line) or _CURL.match(line):
            stage, share = "downloading", min(1.0, int(said["percent"]) / 100)
        elif loading := _LOADING.search(line):
            stage, share = "loading", None
            self.path = loading["path"] or self.path
        elif line and line.strip(".") == "":
            stage, share = "loading", min(1.0, len(line) / _DOTS)
        found = StartProgress(self.progress.name, stage, share)
        if found == self.progress:
            return None
        self.progress = found
        return found
