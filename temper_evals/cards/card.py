"""The format of a card, whose types accept numbers, known words and short names, but no texts.

A card is published, and must not identify a person or a machine. So every string is a known word or
matches a pattern without slashes and `@`, and without spaces except in the names of GPUs. Paths,
URLs, addresses and sentences do not match. `_IDENTIFYING` also rejects keys and IP addresses.
"""

import hashlib
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from proxy.files import read_text

VERSION: Literal[1] = 1
Privacy: TypeAlias = Literal[
    "Counts and names of products and models; no texts, paths, addresses, keys or names of people."
]
PRIVACY: Privacy = get_args(Privacy)[0]
_MOST_ARMS = 64
_MOST_FAMILIES = 256
MOST_GPUS = 64
_MOST_COUNT = 10**13
_MOST_TASKS = 10**6

# An IPv4 address, or a word as long as a key.
_IDENTIFYING = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|[A-Za-z0-9]{24}")


def _check_identifying(text: str) -> str:
    if _IDENTIFYING.search(text):
        raise PydanticCustomError("identifying", "looks like an address or a key")
    return text


def _check_minute(made: datetime) -> datetime:
    """Refuse other time zones, which show where a machine is, and seconds."""
    if made.utcoffset() != timedelta() or made.second or made.microsecond:
        raise PydanticCustomError("minute", "must be a minute in UTC")
    return made


def _pattern(pattern: str) -> StringConstraints:
    return StringConstraints(strict=True, pattern=pattern)


Name: TypeAlias = Annotated[
    str,
    _pattern(r"^[A-Za-z0-9][A-Za-z0-9._+:-]{0,63}$"),
    AfterValidator(_check_identifying),
]
ArmName: TypeAlias = Annotated[str, _pattern(r"^[a-z]{1,12}(-[a-z]{1,12}){0,3}$")]
FamilyName: TypeAlias = Annotated[str, _pattern(r"^[a-z][a-z0-9_-]{0,31}(:[A-Za-z0-9_]{1,40})?$")]
Suite: TypeAlias = Annotated[
    str,
    _pattern(
        r"^(quick|full|real|bfcl:[a-z_]{1,32}|benchmark:[a-z][a-z0-9-]{0,23}(:[A-Za-z0-9_.-]{1,32})?)$"
    ),
    AfterValidator(_check_identifying),
]
# b11669-2f0a35c for llama.cpp; 0.32.0, 2026.10.11549 or 0.11.0rc1 for other engines
Build: TypeAlias = Annotated[
    str, _pattern(r"^(b\d{1,6}(-[0-9a-f]{7,12})?|\d{1,4}(\.\d{1,6}){1,2}((a|b|rc)\d{1,3})?)$")
]
Release: TypeAlias = Annotated[str, _pattern(r"^\d{1,4}(\.\d{1,4}){1,2}((a|b|rc)\d{1,3})?$")]
Quantization: TypeAlias = Annotated[str, _pattern(r"^[A-Z][A-Z0-9_]{0,15}$")]
Digest: TypeAlias = Annotated[str, _pattern(r"^[0-9a-f]{8,32}$")]
Sha256: TypeAlias = Annotated[str, _pattern(r"^[0-9a-f]{64}$")]
Protocol: TypeAlias = Annotated[str, _pattern(r"^[0-9a-f]{16}(-[0-9a-f]{8})?$")]
GpuName: TypeAlias = Annotated[
    str,
    _pattern(
        r"^(other|(NVIDIA|Tesla|GeForce|Quadro|AMD|Radeon|Apple|Intel)"
        r"( [A-Za-z0-9.+()-]{1,16}){0,7})$"
    ),
    AfterValidator(_check_identifying),
]
EngineName: TypeAlias = Literal[
    "llama.cpp", "xllamacpp", "Ollama", "vLLM", "SGLang", "LM Studio", "Ray Serve LLM", "other"
]
System: TypeAlias = Literal["Linux", "macOS", "Windows", "other"]
Architecture: TypeAlias = Literal["x86_64", "arm64", "other"]
Processor: TypeAlias = Literal["AMD", "Intel", "Apple", "Arm", "other"]
# Exact sizes would help to recognize a machine.
PowerOfTwo: TypeAlias = Literal[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
Minute: TypeAlias = Annotated[datetime, AfterValidator(_check_minute)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_MOST_COUNT)]
TaskCount: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_MOST_TASKS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(_Strict):
    """A model: the name of its file without folders, or the last part of its name at the server.

    `sha256` is the digest of the model file; the parts of a split file are hashed in order.
    """

    name: Name
    simulated: bool = False
    quantization: Quantization | None = None
    sha256: Sha256 | None = None


class Engine(_Strict):
    """The engine that ran the model; the build is None if the engine does not report it."""

    name: EngineName
    build: Build | None = None


class Gpu(_Strict):
    """A GPU: its product name and its memory, rounded to a power of two."""

    name: GpuName
    memory_gib: PowerOfTwo


class Hardware(_Strict):
    """The class of a machine; its numbers are rounded to powers of two."""

    system: System
    architecture: Architecture
    processor: Processor
    cores: PowerOfTwo
    memory_gib: PowerOfTwo | None
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=MOST_GPUS)] = ()


class Environment(_Strict):
    """The model, the engine and the hardware of an evaluation.

    A simulated model has no engine and no hardware. The hardware of a server on another machine is
    unknown, so it is None.
    """

    model: Model
    engine: Engine | None = None
    hardware: Hardware | None = None


class Family(_Strict):
    """The right runs and all runs of a family of tasks."""

    right: TaskCount
    runs: TaskCount


class ArmCounts(_Strict):
    """The counts of an arm.

    `helped` and `harmed` compare the arm with `direct`; they are None for `direct` itself, and if
    the evaluation has no arm `direct`. `damage` counts unexpected and repeated changes. `failed`
    counts the runs that ended without an answer. The tokens and seconds are sums over all runs. The
    engine counts the tokens.
    """

    arm: ArmName
    runs: TaskCount
    right: TaskCount
    helped: TaskCount | None = None
    harmed: TaskCount | None = None
    damage: Count
    failed: TaskCount
    generations: Count
    prompt_tokens: Count
    generated_tokens: Count
    seconds: Count
    families: Annotated[dict[FamilyName, Family], Field(max_length=_MOST_FAMILIES)]

    @model_validator(mode="after")
    def _check_sums(self) -> "ArmCounts":
        families = self.families.values()
        sums = sum(each.right for each in families), sum(each.runs for each in families)
        if sums != (self.right, self.runs) or any(each.right > each.runs for each in families):
            raise PydanticCustomError("sums", "the families do not add up to the runs of the arm")
        if max(self.failed, self.helped or 0, self.harmed or 0) > self.runs:
            raise PydanticCustomError("sums", "more runs are counted than were made")
        return self


class Card(_Strict):
    """The results of one model in one suite.

    `made` is the minute of the last run in UTC, `temper` Temper's release, and `guardrails` a
    digest of the code that decides about calls. Cards with equal `protocol` and `tasks_digest` have
    the same tasks, seeds and judge.
    """

    version: Literal[1] = VERSION
    privacy: Privacy = PRIVACY
    made: Minute
    temper: Release
    guardrails: Digest | None
    environment: Environment
    suite: Suite
    protocol: Protocol
    tasks: TaskCount
    seeds: TaskCount
    tasks_digest: Digest
    arms: Annotated[tuple[ArmCounts, ...], Field(min_length=1, max_length=_MOST_ARMS)]

    @model_validator(mode="after")
    def _check_arms(self) -> "Card":
        if len({arm.arm for arm in self.arms}) != len(self.arms):
            raise PydanticCustomError("arms", "an arm occurs twice")
        if any(arm.runs != self.tasks * self.seeds for arm in self.arms):
            raise PydanticCustomError("arms", "an arm does not have every task with every seed")
        return self

    def find_arm(self, name: str) -> ArmCounts | None:
        return next((arm for arm in self.arms if arm.arm == name), None)

    @property
    def file_name(self) -> str:
        """The name in a folder of published cards; equal content has equal names."""
        suite = re.sub(r"[^A-Za-z0-9.-]", "-", self.suite)
        model = re.sub(r"[^A-Za-z0-9.-]", "-", self.environment.model.name)
        digest = hashlib.blake2b(to_bytes(self), digest_size=4).hexdigest()
        return f"{model}-{suite}-{self.made:%Y-%m-%d}-{digest}.json".lower()


def to_bytes(card: Card) -> bytes:
    """Return the bytes of a card; equal cards have equal bytes."""
    return card.model_dump_json(indent=2).encode() + b"\n"


def check_new_file(path: Path) -> None:
    """Raise InvalidConfiguration if a card cannot be written to `path`.

    Called before the runs, which may take hours.
    """
    if path.exists():
        problem = f"{path} already exists: pass another name, or remove the file"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}: create it, or pass another name"
    elif not os.access(path.parent, os.W_OK):
        problem = f"the folder {path.parent} is not writable: pass a name in another folder"
    else:
        return
    raise InvalidConfiguration("--card", problem)


def write_card(card: Card, path: Path) -> None:
    """Write a card to a new file; raises InvalidConfiguration."""
    try:
        check_new_file(path)
        with path.open("xb") as file:
            file.write(to_bytes(card))
    except (OSError, ValueError) as error:  # such as a name that is too long
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"{path} cannot be written ({reason}): pass another name"
        raise InvalidConfiguration("--card", problem) from error


def first_problem(error: ValidationError) -> str:
    """Return the first invalid field with its problem, without its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]


def read_card(path: Path) -> Card:
    """Read a card; raises InvalidConfiguration that names the file."""
    text = read_text(path).replace("\r\n", "\n")  # Git on Windows changes the ends of lines
    try:
        document = json.parse(text.encode())
    except ValueError as error:
        problem = f"is not valid JSON: write it again with `temper eval --card` ({error})"
        raise InvalidConfiguration(str(path), problem) from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        problem = f"is not a card of version {VERSION}"
        remedy = "write it again with `temper eval --card`"
        if isinstance(version, int) and version > VERSION:
            problem, remedy = f"is a card of version {version}", "update Temper to read it"
        raise InvalidConfiguration(str(path), f"{problem}: {remedy}")
    try:
        card = Card.model_validate_json(text)
    except ValidationError as error:
        problem = f"{first_problem(error)}; write the card again with `temper eval --card`"
        raise InvalidConfiguration(str(path), problem) from error
    # duplicate members or spaces could hide texts that are not part of the parsed card
    if text.encode() != to_bytes(card):
        problem = "was edited: write it again with `temper eval --card`"
        raise InvalidConfiguration(str(path), problem)
    return card
