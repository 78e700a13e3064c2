"""What a GGUF file tells about the model in it, read without starting anything."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy.hardware.shape import ModelShape, shape_of
from proxy.processes.gguf_header import UNREADABLE, Unread, Value, read_header

_ARCHITECTURE = "general.architecture"
_TEMPLATE = "tokenizer.chat_template"
_NAMES = ("general.name", "general.basename")
_VOCABULARY = "tokenizer.ggml.tokens"
_PART = re.compile(r"-\d{5}-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Names, architecture and chat template of a model; "" where the file does not say.

    Its `shape` is what decides on the memory that it needs.
    """

    names: tuple[str, ...]
    architecture: str = ""
    template: str = ""
    shape: ModelShape | None = None


def read_model_file(path: Path) -> ModelFile:
    """Read what can be read; a file that is missing or broken still has its name."""
    try:
        told = read_header(path)
        weights = size_of(path)
    except UNREADABLE:
        return ModelFile((str(path),))
    own = (name for name in (_text(told, key) for key in _NAMES) if name)
    return ModelFile(
        (str(path), *own),
        _text(told, _ARCHITECTURE),
        _text(told, _TEMPLATE),
        shape_of(told, weights, _count(told, _VOCABULARY)),
    )


def size_of(path: Path) -> int:
    """Return the bytes of a model, which may be split; what is missing has none."""
    return sum(part.stat().st_size for part in _parts(path) if part.is_file())


def _parts(path: Path) -> tuple[Path, ...]:
    """Return all files of a model that was split, `name-00001-of-00003.gguf` being the first."""
    found = _PART.search(path.name)
    if found is None:
        return (path,)
    stem, count = path.name[: found.start()], found["count"]
    names = (f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1))
    return tuple(path.with_name(name) for name in names)


def _text(told: Mapping[str, Value], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""


def _count(told: Mapping[str, Value], key: str) -> int:
    value = told.get(key)
    return value.count if isinstance(value, Unread) else 0
