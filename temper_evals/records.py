"""The records of an evaluation: its protocol, and one line per run, written when the run ends.

A killed process can leave a partial line at the end; the line is ignored, and its run is made
again. Records of different protocols are never mixed.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.simulated.profiles import folder as data_folder

RUNS = "runs.jsonl"
PROTOCOL = "protocol.json"
TRANSCRIPTS = "transcripts"

Key: TypeAlias = tuple[str, str, str, int]

# the code that determines requests, replies and judgments; arms and reports are not part of it
_CODE = ("scenarios", "simulated", "loop.py", "replies.py")


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One run of a scenario by an arm; `bed` is the name of the model setup.

    `seconds` are measured by the client, `model_seconds` by the model. `text_seconds` and
    `call_seconds` are the times to the first text and the first call of each reply. Runs with
    byte-identical replies have the same `digest`. `wasted` counts calls that failed or repeated an
    earlier call.
    """

    bed: str
    arm: str
    scenario: str
    seed: int
    family: str
    right: bool
    ending: str
    digest: str
    why: str = ""
    damage: int = 0
    promoted: int = 0
    wasted: int = 0
    requests: int = 0
    generations: int = 0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    model_seconds: float = 0.0
    seconds: float = 0.0
    text_seconds: list[float] = []
    call_seconds: list[float] = []
    outcomes: list[str] = []
    flaws: list[str] = []

    @property
    def key(self) -> Key:
        """The identity of a run: records have at most one run for each key."""
        return self.bed, self.arm, self.scenario, self.seed

    @property
    def pair(self) -> tuple[str, int]:
        """The key that the runs of different arms share."""
        return self.scenario, self.seed


def protocol_hash() -> str:
    """Return a hash of the code and data that determine requests, replies and judgments."""
    digest = hashlib.blake2b(digest_size=8)
    here = Path(__file__).parent
    for name in _CODE:
        source = here / name
        for path in sorted(source.rglob("*.py")) if source.is_dir() else (source,):
            digest.update(path.read_bytes())
    data = data_folder()
    digest.update((data / "reactions.toml").read_bytes())
    digest.update((data / "renderings.jsonl").read_bytes())
    for profile in sorted((data / "profiles").iterdir(), key=lambda path: path.name):
        digest.update(profile.read_bytes())
    return digest.hexdigest()


class Records:
    """The records in a folder; a record is written when its run ends."""

    def __init__(self, folder: Path, protocol: JsonObject) -> None:
        self.folder = folder
        self.protocol = protocol
        folder.mkdir(parents=True, exist_ok=True)
        self.runs = [*read_runs(folder)]
        _check_protocol(folder / PROTOCOL, protocol, has_runs=bool(self.runs))
        self._by_key = {run.key: run for run in self.runs}
        # otherwise the next record would continue the partial line
        _remove_partial_line(folder / RUNS)
        # unbuffered, so that a record is in the file when `add` returns
        self._file = FileIO(folder / RUNS, "a")

    def has(self, key: Key) -> bool:
        return key in self._by_key

    def find(self, key: Key) -> RunRecord | None:
        return self._by_key.get(key)

    def add(self, run: RunRecord) -> None:
        """Add a run with a single write: a killed process leaves at most one partial line."""
        if run.key in self._by_key:
            return
        self._file.write(msgspec.json.encode(run) + b"\n")
        self._by_key[run.key] = run
        self.runs.append(run)

    def keep_transcript(self, run: RunRecord, messages: Iterable[JsonObject]) -> None:
        folder = self.folder / TRANSCRIPTS / run.bed / run.arm
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{run.scenario}-{run.seed}.jsonl").write_bytes(json.dump_lines(messages))

    def close(self) -> None:
        """Close the file after all records are on the disk."""
        os.fsync(self._file.fileno())
        self._file.close()


def read_runs(folder: Path) -> Iterator[RunRecord]:
    """Read the records of a folder; raises InvalidConfiguration for a damaged line."""
    path = folder / RUNS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line.endswith(b"\n"):
            try:
                yield msgspec.json.decode(line, type=RunRecord)
            except msgspec.MsgspecError as error:
                raise InvalidConfiguration(str(path), f"line {number}: {error}") from error


def read_protocol(folder: Path) -> JsonObject:
    """Read the protocol of a folder; raises InvalidConfiguration without one."""
    try:
        value = json.parse((folder / PROTOCOL).read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            str(folder), "contains no evaluation: pass the --output folder of `temper eval`"
        ) from error
    return value if isinstance(value, dict) else {}


def read_transcript(folder: Path, run: RunRecord) -> list[JsonValue]:
    """Read the transcript of a run; empty if it was not stored."""
    path = folder / TRANSCRIPTS / run.bed / run.arm / f"{run.scenario}-{run.seed}.jsonl"
    return [json.parse(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _check_protocol(path: Path, protocol: JsonObject, *, has_runs: bool) -> None:
    """Write the protocol of a folder without runs; refuse runs of another protocol."""
    if not path.exists() or not has_runs:
        path.write_bytes(json.dump(protocol) + b"\n")
        return
    before = read_protocol(path.parent)
    for name, what in (("hash", "protocol"), ("guardrails", "guardrails")):
        if before.get(name) != protocol.get(name):
            problem = f"was made by {what} {before.get(name)}, not by {protocol.get(name)}"
            raise InvalidConfiguration(str(path.parent), f"{problem}: choose another folder")


def _remove_partial_line(path: Path) -> None:
    """Remove a partial line at the end of the file."""
    if path.exists():
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(path, end)
