"""Reads files that the operator names. Their size is limited, because a path may be wrong."""

import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from proxy import bounds
from proxy.errors import InvalidConfiguration

# a part of a dotted key in TOML, such as `a`, `"b"` or `'c'` in `a."b".'c'`
_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*"""
# Maps errors to patterns. TOML that matches is rejected before it is parsed, because it would make
# the parser slow or the parser's error unreadable (F82).
_REJECTED = {
    # tomllib takes quadratic time for such a key
    f"has a key of more than {bounds.KEY_PARTS} parts": re.compile(
        rf"(?:^|[\[{{,])[ \t]*(?:{_PART}\.[ \t]*){{{bounds.KEY_PARTS}}}", re.MULTILINE
    ),
    f"has a number of more than {bounds.DIGITS} digits": re.compile(
        rf"0[xob]\w{{{bounds.DIGITS}}}"
    ),
}


def read_text(path: Path | Traversable, setting: str = "") -> str:
    """Read a text file; raises `InvalidConfiguration`, which names the setting or the file."""
    try:
        with path.open("rb") as file:
            content = file.read(bounds.FILE_BYTES + 1)
        if len(content) > bounds.FILE_BYTES:
            raise _unusable(path, setting, f"is larger than {bounds.FILE_BYTES} bytes")
        return content.decode("utf-8-sig")  # editors on Windows add a BOM
    except OSError as error:
        raise _unusable(path, setting, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, setting, "is not a text file in UTF-8") from error
    except ValueError as error:  # an invalid file name, e.g. with a null character
        raise _unusable(path, setting, f"cannot be read: {error}") from error


def read_toml(path: Path | Traversable) -> dict[str, object]:
    """Read a TOML file; raises `InvalidConfiguration`, which names the file."""
    text = read_text(path)
    try:
        for problem, pattern in _REJECTED.items():
            if pattern.search(text):
                raise InvalidConfiguration(str(path), problem)
        return tomllib.loads(text)
    except RecursionError as error:
        raise InvalidConfiguration(str(path), "is nested too deeply") from error
    except ValueError as error:
        raise InvalidConfiguration(str(path), f"is not valid TOML: {error}") from error


def list_shipped(folder: str, package: Traversable | None = None) -> list[Traversable]:
    """Return the shipped TOML files in a folder of `config`, sorted by name."""
    package = package or resources.files("proxy")
    # an installed package contains the folders; in a checkout, they are in `config` next to it
    installed = package / folder
    directory = installed if installed.is_dir() else package / ".." / "config" / folder
    files = (file for file in directory.iterdir() if file.name.endswith(".toml"))
    return sorted(files, key=lambda file: file.name)


def _unusable(path: Path | Traversable, setting: str, problem: str) -> InvalidConfiguration:
    if setting:
        return InvalidConfiguration(setting, f"{path} {problem}")
    return InvalidConfiguration(str(path), problem)
