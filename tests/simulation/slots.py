"""The slots of the llama-servers: their prompt caches are saved to files and restored.

    POST /slots/0?action=save {"filename": "9c1f52ab-4711-0.tmp"}

A file contains the names of the model and of the llama.cpp build that wrote it. Saving and
restoring fail as in llama-server: with an error, with a success although the file is truncated or
only some tokens are restored, without a response, or with a crash. `Caches` checks that a cache is
never restored by another model or build, nor after it has crashed a server.
"""

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.backend import SLOTS as SLOTS_OF_ENGINE
from benchmarks.faults.toxics import whole
from benchmarks.load.backend import DOCUMENTS
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object

MOST_MB = 1
SECONDS = 1  # the limit for saving all slots, and for restoring them
OCCURRENCES = (
    *("saved caches", "failed saves", "restored caches", "failed restores", "crashing caches"),
    "other builds",
)
_FOLDER = "--slot-save-path"
_SILENCE = 10.0  # seconds, more than Temper waits
_SIZES = (200_000, 900_000)  # bytes of a file; a few files together exceed `MOST_MB`
_TOKENS = (20, 4000)
_OUTCOMES = ("good", "refused", "cut", "silent", "crash")
_WEIGHTS = {"save": (82, 5, 5, 4, 4), "restore": (60, 10, 10, 8, 12)}
_REFUSED = whole(b'{"error":{"code":500,"message":"Unable to use file"}}', status="500 Failed")
_MISSING = whole(b'{"error":{"code":400,"message":"No such file"}}', status="400 Bad Request")


def settings(folder: Path | None) -> dict[str, object]:
    """Return the settings of prompt caches in a folder; without one, none are saved."""
    return {"folder": folder, "max_mb": MOST_MB, "max_seconds": SECONDS}


@dataclass(slots=True)
class Caches:
    """The saved caches of a run; all models share the `folder`."""

    folder: Path
    chance: random.Random
    problems: Counter[str]
    occurrences: Counter[str] = field(default_factory=Counter)
    crashing: set[int] = field(default_factory=set)
    count: int = 0
    _builds: dict[str, int] = field(default_factory=dict)

    def build_of(self, name: str) -> str:
        """Return the build of a model's llama-server; at some starts it is a newer build."""
        is_new = self.chance.random() < 0.1
        self.occurrences["other builds"] += is_new
        self._builds[name] = self._builds.get(name, 1) + is_new
        return f"b{self._builds[name]}"

    def vanish(self) -> None:
        """Delete some files, or the folder, as an operator who needs disk space does."""
        if self.chance.random() < 0.3:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for path in sorted(self.folder.glob("*")):
            if self.chance.random() < 0.5:
                path.unlink()

    def check_size(self) -> None:
        """Check that all files together do not exceed `prompt_cache.max_mb`."""
        if not self.folder.exists():
            return
        size = sum(path.stat().st_size for path in self.folder.glob("*.slot"))
        if size > MOST_MB * 1_000_000:
            self.problems[f"{size} bytes of prompt caches, more than prompt_cache.max_mb"] += 1


@dataclass(slots=True)
class _Slot:
    task: int = -1
    tokens: int = 0


class SlotEndpoints:
    """The `/slots` endpoints of one llama-server; `crash` ends this server."""

    def __init__(
        self, caches: Caches, name: str, command: tuple[str, ...], crash: Callable[[], None]
    ) -> None:
        count = int(command[command.index("-np") + 1])
        self._caches, self._name, self._crash = caches, name, crash
        self._folder = Path(command[command.index(_FOLDER) + 1])
        self._build = caches.build_of(name)
        self._slots = [_Slot() for _ in range(count)]
        self._tasks = 0

    def use(self) -> None:
        """Put the prompt of a new request into a random slot."""
        self._tasks += 1
        slot = self._caches.chance.choice(self._slots)
        slot.task, slot.tokens = self._tasks, self._caches.chance.randint(*_TOKENS)

    async def respond(self, path: str, request: bytes) -> bytes:
        """Return the response to a request, or b"" if `path` is not about slots."""
        body = request.partition(b"\r\n\r\n")[2]
        document = as_object(json.parse(body)) if body else {}
        match path.partition("?")[0].split("/")[1:]:
            case ["props"]:
                changes: JsonObject = {"build_info": self._build, "total_slots": SLOTS_OF_ENGINE}
                return _ok({**DOCUMENTS[b"/props"], **changes})
            case ["completion"]:
                is_read_again = self._caches.chance.random() < 0.05
                return _ok({"timings": {"cache_n": 0 if is_read_again else 9}})
            case ["slots"]:
                slots: list[JsonValue] = [
                    {"id": number, "id_task": slot.task, "is_processing": False}
                    for number, slot in enumerate(self._slots)
                ]
                return whole(json.dump(slots))
            case ["slots", number]:
                slot = self._slots[int(number)]
                file = self._folder / f"{document.get('filename')}"
                return await self._act(path.rpartition("=")[2], slot, file)
            case _:
                return b""

    async def _act(self, action: str, slot: _Slot, file: Path) -> bytes:
        if action == "erase":
            slot.tokens = 0
            return _ok({"n_erased": 1})
        (outcome,) = self._caches.chance.choices(_OUTCOMES, _WEIGHTS[action])
        if outcome == "silent":
            await asyncio.sleep(_SILENCE)
            return _REFUSED
        if action == "save":
            return self._save(slot, file, outcome)
        return self._restore(slot, file, outcome)

    def _save(self, slot: _Slot, file: Path, outcome: str) -> bytes:
        caches = self._caches
        if outcome == "crash":
            self._crash()
            return b""
        if outcome == "refused" or not self._folder.exists():
            caches.occurrences["failed saves"] += 1
            return _REFUSED
        caches.occurrences["saved caches"] += 1
        size = caches.chance.randint(*_SIZES)
        caches.count += 1
        content: JsonObject = {
            "number": caches.count,
            "name": self._name,
            "build": self._build,
            "tokens": slot.tokens,
        }
        file.write_bytes(json.dump(content) + b"\n")
        with file.open("rb+") as saved:
            saved.truncate(size // 2 if outcome == "cut" else size)
        os.utime(file, (time.time(), time.time()))  # the virtual time
        return _ok({"n_saved": slot.tokens, "n_written": size})

    def _restore(self, slot: _Slot, file: Path, outcome: str) -> bytes:
        caches = self._caches
        if not file.exists():
            caches.occurrences["failed restores"] += 1
            return _MISSING
        content = as_object(json.parse(file.read_bytes().partition(b"\n")[0]))
        number, tokens = content["number"], content["tokens"]
        assert isinstance(number, int)
        assert isinstance(tokens, int)
        writer = content["name"], content["build"]
        if writer != (self._name, self._build):
            caches.problems[f"{self._name} {self._build} restored a cache of {writer}"] += 1
        if number in caches.crashing:
            caches.problems[f"{self._name} restored a cache that had crashed it"] += 1
        if outcome == "crash":
            caches.occurrences["crashing caches"] += 1
            caches.crashing.add(number)
            self._crash()
            return b""
        if outcome == "refused":
            caches.occurrences["failed restores"] += 1
            return _REFUSED
        is_complete = outcome == "good"
        caches.occurrences["restored caches" if is_complete else "failed restores"] += 1
        self._tasks += 1
        slot.task, slot.tokens = self._tasks, tokens if is_complete else tokens // 2
        return _ok({"n_restored": slot.tokens, "n_read": file.stat().st_size})


def _ok(document: JsonObject) -> bytes:
    return whole(json.dump(document))
