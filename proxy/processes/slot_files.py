"""The files with the prompt caches of slots: whose they are, when they are valid, which are kept.

    9c1f52ab-51d3a2e09b7c4f16-0-6333.slot    owner, conditions, slot, tokens
    9c1f52ab-4711-0.tmp                      owner, process of Temper, slot: not complete yet

The conditions are a hash of everything that the cache depends on. If one of them changes, the file
is not found again. It is removed at the owner's next start; others after a week, or if the folder
is too large, the oldest first.
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

_FORMAT = "1"  # to be increased if the meaning of the files changes
_MOST_SECONDS = 7 * 86_400  # prompts are private, and an older conversation is hardly continued
_ABANDONED_SECONDS = 600  # no save takes this long: the server or Temper has died
_NAME = re.compile(
    r"(?P<owner>[0-9a-f]{8})-(?P<key>[0-9a-f]{16})-(?P<slot>\d{1,4})-(?P<tokens>\d{1,9})\.slot"
)
_TEMPORARY = re.compile(r"[0-9a-f]{8}-\d+-\d+\.tmp")
_SEPARATORS = re.compile(r"[=,:]")  # of the files in an argument, as in --lora a.gguf,b.gguf
_OPTIONS = "LLAMA_ARG_"  # variables with options of llama-server


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """A complete file."""

    path: Path
    slot: int
    tokens: int
    size: int
    modified: float

    def remove(self) -> None:
        with suppress(OSError):  # Windows does not remove a file that is open
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """The files of one server under its current conditions, among those of others."""

    folder: Path
    owner: str
    key: str

    def saved(self) -> tuple[SavedSlot, ...]:
        """Return the latest file of each slot, the latest first."""
        latest: dict[int, SavedSlot] = {}
        for saved in filter(self._is_mine, _list(self.folder)):
            latest.setdefault(saved.slot, saved)
        return tuple(latest.values())

    def temporary(self, slot: int) -> Path:
        return self.folder / f"{self.owner}-{os.getpid()}-{slot}.tmp"

    def keep(self, slot: int, tokens: int, size: int, used: float) -> SavedSlot:
        """Name the temporary file of a slot, once it is on the disk; raises OSError.

        `used` is the time of its last use, in seconds since 1970; only its order matters.
        Without the flush, a power failure could leave zeros at the end of the file, and the server
        would answer from a prompt that it has never read.
        """
        temporary = self.temporary(slot)
        with temporary.open("rb+") as file:
            keep_private(file.fileno())
            if os.fstat(file.fileno()).st_size != size:  # a full disk is no error for the server
                raise OSError("the file is incomplete; is the disk full?")
            os.fsync(file.fileno())
        os.utime(temporary, (used, used))
        path = self.folder / f"{self.owner}-{self.key}-{slot}-{tokens}.slot"
        temporary.replace(path)
        for saved in _list(self.folder):
            if saved.slot == slot and saved.path != path and self._is_mine(saved):
                saved.remove()
        return SavedSlot(path, slot, tokens, size, used)

    def remove_all(self) -> None:
        """Remove the files of this server, so that it starts without them."""
        for saved in filter(self._is_mine, _list(self.folder)):
            saved.remove()

    def clean(self, most_bytes: int) -> None:
        """Remove files that will never be used, and the oldest ones beyond `most_bytes`."""
        now, total = time.time(), 0
        for saved in _list(self.folder):
            is_old = saved.modified < now - _MOST_SECONDS
            is_outdated = self._has_owner(saved) and not self._is_mine(saved)
            if is_old or is_outdated or total + saved.size > most_bytes:
                saved.remove()
            else:
                total += saved.size
        for path in self.folder.glob("*.tmp"):
            with suppress(OSError):  # another process has just named or removed it
                is_abandoned = path.stat().st_mtime < now - _ABANDONED_SECONDS
                if is_abandoned and _TEMPORARY.fullmatch(path.name):
                    path.unlink()

    def _has_owner(self, saved: SavedSlot) -> bool:
        return saved.path.name.startswith(f"{self.owner}-")

    def _is_mine(self, saved: SavedSlot) -> bool:
        return saved.path.name.startswith(f"{self.owner}-{self.key}-")


def slot_files(folder: Path, plan: LaunchPlan, build: str, model_path: str) -> SlotFiles:
    """Return the files of a server that was started by a plan, and reports its build and model.

    Raises OSError if one of them cannot be identified, for example a model that was removed.
    """
    owner = _digest([plan.alias or "", str(plan.model)], 4)
    return SlotFiles(folder, owner, _digest(_conditions(plan, build, model_path), 8))


def _conditions(plan: LaunchPlan, build: str, model_path: str) -> Iterator[str]:
    """Yield everything that a cache depends on.

    All arguments count, although some of them, such as the sampling, change nothing: a needless
    cold start costs seconds, a wrong cache a wrong answer.
    """
    yield from (_FORMAT, build)
    yield from replace(plan, port=0, slot_folder=None).command()
    yield from (f"{name}={os.environ[name]}" for name in sorted(os.environ) if _is_option(name))
    yield _embedded_build() if plan.is_embedded else _identity(Path(plan.program[0]))
    # a downloaded model is in the server's cache
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
    """Return all complete files of a folder, the latest first."""
    slots: list[SavedSlot] = []
    for path in folder.iterdir():
        if (match := _NAME.fullmatch(path.name)) is not None:
            with suppress(OSError):  # another process has removed it
                status = path.stat()
                numbers = int(match["slot"]), int(match["tokens"])
                slots.append(SavedSlot(path, *numbers, status.st_size, status.st_mtime))
    return sorted(slots, key=lambda saved: saved.modified, reverse=True)
