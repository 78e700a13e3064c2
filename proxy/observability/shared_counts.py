"""What the workers of one server have counted, for each other: a small file of each in a folder.

Files are replaced as a whole, and that of a worker that has ended stays: what it counted happened.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proxy.observability.history import Counted

_PREFIX = "requests-"


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Which of several workers it is, counted from 1, and the folder that all of them share."""

    number: int
    folder: Path


@dataclass(slots=True)
class SharedCounts:
    """What other workers have counted, as seen by the one at a `place`."""

    place: WorkerPlace

    def publish(self, counted: Counted) -> None:
        """Let the others know what this one has counted."""
        file = self._own()
        fresh = file.with_suffix(".new")
        with contextlib.suppress(OSError):  # the next second brings another one
            fresh.write_bytes(msgspec.json.encode(counted))
            fresh.replace(file)

    def others(self) -> tuple[Counted, ...]:
        """Return what all others have counted so far."""
        own = self._own()
        files = self.place.folder.glob(f"{_PREFIX}*.json")
        read = (_read(file) for file in files if file != own)
        return tuple(counted for counted in read if counted is not None)

    def _own(self) -> Path:
        return self.place.folder / f"{_PREFIX}{os.getpid()}.json"


def _read(file: Path) -> Counted | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Counted)
    except (OSError, msgspec.DecodeError):
        return None
