"""Names and removes the files with the prompt caches of slots.

    9c1f52ab-51d3a2e09b7c4f16-0-6333.slot    owner, key, slot, tokens
    9c1f52ab-4711-0.tmp                      owner, process id of Temper, slot (incomplete)

The owner identifies a server by a hash of its model's name. The key is a hash of everything that a
cache depends on, such as the model file and the build of the server. When a server starts, Temper
removes the server's files that have a different key. All files are removed after a week. If the
folder is too large, the oldest files are removed earlier.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from proxy.processes.launch import LaunchPlan
from proxy.processes.model_file import parts_of
from proxy.systems import keep_private

_FORMAT = "1"  # part of the key: increase it if the meaning of the files changes
_MOST_SECONDS = 7 * 86_400  # prompts are private, and older conversations are rarely continued
_ABANDONED_SECONDS = 600  # no save takes this long, so the server or Temper has died
_NAME = re.compile(
    r"(?P<owner>[0-9a-f]{8})-(?P<key>[0-9a-f]{16})-(?P<slot>\d{1,4})-(?P<tokens>\d{1,9})\.slot"
)
_TEMPORARY = re.compile(r"[0-9a-f]{8}-\d+-\d+\.tmp")
_SEPARATORS = re.compile(r"[=,:]")  # between the files in an argument, e.g. --lora a.gguf,b.gguf
_OPTIONS = "LLAMA_ARG_"  # prefix of the environment variables with options of llama-server


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """A complete file; `size` is in bytes, and `modified` is a Unix time."""

    path: Path
    slot: int
    tokens: int
    size: int
    modified: float

    def remove(self) -> bool:
        """Remove the file; return False if it remains: Windows does not remove an open file."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """The files of one server, in a folder that several servers share."""

    folder: Path
    owner: str
    key: str

    def saved(self) -> tuple[SavedSlot, ...]:
        """Return the latest file of each slot, the latest file first."""
        latest: dict[int, SavedSlot] = {}
        for saved in filter(self._is_mine, _list(self.folder)):
            latest.setdefault(saved.slot, saved)
        return tuple(latest.values())

    def temporary(self, slot: int) -> Path:
        return self.folder / f"{self.owner}-{os.getpid()}-{slot}.tmp"

    def keep(self, slot: int, tokens: int, size: int, used: float) -> SavedSlot:
        """Flush the temporary file of a slot, and rename it to its final name; raises OSError.

        `used`, a Unix time, becomes the file's modification time, by which files are ordered.
        Without the flush, a power failure could leave zeros at the end of the file, and the server
        would continue a prompt that it has never read.
        """
        temporary = self.temporary(slot)
        with temporary.open("rb+") as file:
            keep_private(file.fileno())
            # if the disk is full, the server reports success although the file is incomplete
            if os.fstat(file.fileno()).st_size != size:
                raise OSError("the file is incomplete; is the disk full?")
            os.fsync(file.fileno())
        os.utime(temporary, (used, used))
        path = self.folder / f"{self.owner}-{self.key}-{slot}-{tokens}.slot"
        temporary.replace(path)
        for saved in _list(self.folder):
            if saved.slot == slot and saved.path != path and self._is_mine(saved):
                saved.remove()
        return SavedSlot(path, slot, tokens, size, used)

    def remove_all(self) -> bool:
        """Remove the files of this server, so that it starts without them; False if one remains."""
        removals = [saved.remove() for saved in filter(self._is_mine, _list(self.folder))]
        return all(removals)

    def clean(self, most_bytes: int) -> None:
        """Remove old, outdated and abandoned files, and the oldest files beyond `most_bytes`."""
        now, total = time.time(), 0
        for saved in _list(self.folder):
            is_old = saved.modified < now - _MOST_SECONDS
            is_outdated = self._has_owner(saved) and not self._is_mine(saved)
            if is_old or is_outdated or total + saved.size > most_bytes:
                saved.remove()
            else:
                total += saved.size
        for path in self.folder.glob("*.tmp"):
            with suppress(OSError):  # another process has just renamed or removed it
                is_abandoned = path.stat().st_mtime < now - _ABANDONED_SECONDS
                if is_abandoned and _TEMPORARY.fullmatch(path.name):
                    path.unlink()

    def _has_owner(self, saved: SavedSlot) -> bool:
        return saved.path.name.startswith(f"{self.owner}-")

    def _is_mine(self, saved: SavedSlot) -> bool:
        return saved.path.name.startswith(f"{self.owner}-{self.key}-")


def slot_files(folder: Path, plan: LaunchPlan, build: str, model_path: str) -> SlotFiles:
    """Return the files of a server; `build` and `model_path` are from its /props.

    Raises OSError if the program, the model or another file on which a cache depends cannot be
    read, for example because the model was removed.
    """
    owner = _digest([plan.alias or "", str(plan.model)], 4)
    return SlotFiles(folder, owner, _digest(_conditions(plan, build, model_path), 8))


def _conditions(plan: LaunchPlan, build: str, model_path: str) -> Iterator[str]:
    """Yield everything that a cache depends on.

    All arguments are included, although some do not affect a cache, e.g. the sampling: reading a
    prompt again costs seconds, but a wrong cache causes wrong answers.
    """
    yield from (_FORMAT, build)
    # the port and the folder may change, because they do not affect a cache
    yield from replace(plan, port=0, slot_folder=None).command()
    yield from (f"{name}={os.environ[name]}" for name in sorted(os.environ) if _is_option(name))
    yield _embedded_build() if plan.is_embedded else _identity(Path(plan.program[0]))
    # only the server knows the path of a model that it downloaded
    model = plan.model if isinstance(plan.model, Path) else Path(model_path or plan.model)
    yield from map(_identity, parts_of(model))
    values = (value for word in plan.extra for value in (word, *_SEPARATORS.split(word)))
    yield from (_identity(Path(value)) for value in values if value and Path(value).is_file())


def _embedded_build() -> str:
    try:
        return version("xllamacpp")
    except PackageNotFoundError as error:
        raise OSError("the version of xllamacpp is unknown") from error


def _is_option(variable: str) -> bool:
    return variable.startswith(_OPTIONS)


def _identity(file: Path) -> str:
    status = file.stat()
    return f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"


def _digest(parts: Iterable[str], size: int) -> str:
    return blake2b(repr([*parts]).encode(), digest_size=size).hexdigest()


def _list(folder: Path) -> list[SavedSlot]:
    """Return all complete files of a folder, the latest file first."""
    slots: list[SavedSlot] = []
    for path in folder.iterdir():
        if (match := _NAME.fullmatch(path.name)) is not None:
            with suppress(OSError):  # another process has removed it
                status = path.stat()
                numbers = int(match["slot"]), int(match["tokens"])
                slots.append(SavedSlot(path, *numbers, status.st_size, status.st_mtime))
    return sorted(slots, key=lambda saved: saved.modified, reverse=True)
