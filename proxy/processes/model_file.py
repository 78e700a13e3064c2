"""What a GGUF file tells about the model in it, read without starting anything.

The metadata needs the `gguf` library of the extra `embedded`; without it a file has only its name.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

_ARCHITECTURE = "general.architecture"
_TEMPLATE = "tokenizer.chat_template"
_NAMES = ("general.name", "general.basename")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Names, architecture and chat template of a model; "" where the file does not say."""

    names: tuple[str, ...]
    architecture: str = ""
    template: str = ""


def read_model_file(path: Path) -> ModelFile:
    """Read what can be read; a file that is missing or broken still has its name."""
    told = _metadata(path)
    own = (told[name] for name in _NAMES if told.get(name))
    return ModelFile((str(path), *own), told.get(_ARCHITECTURE, ""), told.get(_TEMPLATE, ""))


def _metadata(path: Path) -> dict[str, str]:
    try:
        from gguf import GGUFReader, GGUFValueType
    except ImportError:
        return {}
    try:
        fields = GGUFReader(path).fields
    except (OSError, ValueError, KeyError, IndexError, struct.error):
        return {}
    wanted = (_ARCHITECTURE, _TEMPLATE, *_NAMES)
    return {
        name: str(fields[name].contents())
        for name in wanted
        if name in fields and fields[name].types == [GGUFValueType.STRING]
    }
