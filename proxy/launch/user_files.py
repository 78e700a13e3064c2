"""Writes an agent's permanent configuration into a file of the user, and restores that file.

An installation creates two files next to the user's file:

    settings.json.before-temper    the content before the installation (absent if there was no file)
    settings.json.by-temper        the content that Temper wrote

If the user's file still equals `.by-temper`, it is replaced by `.before-temper`, byte for byte. If
the user has edited the file, only the entries that still have Temper's values are restored.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.launch.agents import Installation


def path_of(installation: Installation, environment: Mapping[str, str], home: Path) -> Path:
    """Return the file of an installation."""
    folder = environment.get(installation.variable)
    return (Path(folder) if folder else home / installation.folder) / installation.path


def install(file: Path, content: JsonObject | str) -> None:
    """Write the configuration; a second installation replaces the first.

    Raises `InvalidConfiguration` if `content` is an object and the file is not JSON, or if
    `content` is text and the file exists but was not written by Temper.
    """
    before, installed = _copies(file)
    if installed.exists():
        remove(file, content)
    original = file.read_bytes() if file.exists() else None
    if isinstance(content, str):
        if original is not None:
            problem = "exists, and Temper did not write it; rename it first"
            raise InvalidConfiguration(str(file), problem)
        text = content
    else:
        text = _as_text(_merge(_read(file), content))
    file.parent.mkdir(parents=True, exist_ok=True)
    # the copies are written first, so that the file can be restored even after a crash
    if original is not None:
        before.write_bytes(original)
    installed.write_bytes(text.encode())
    _replace(file, text.encode())


def remove(file: Path, content: JsonObject | str) -> bool:
    """Restore the file; returns False if there is no installation.

    Raises `InvalidConfiguration` if the file is no longer JSON, or if it is a text file that the
    user has edited.
    """
    before, installed = _copies(file)
    if not installed.exists():
        return False
    original = before.read_bytes() if before.exists() else None
    current = file.read_bytes() if file.exists() else None
    if current == installed.read_bytes():
        if original is None:
            file.unlink()
        else:
            _replace(file, original)
    elif current is not None and not isinstance(content, str):
        installed_values, old = (
            _parse(installed, installed.read_bytes()),
            _parse(before, original or b"{}"),
        )
        _replace(file, _as_text(_restore(_parse(file, current), installed_values, old)).encode())
    elif current is not None:
        problem = "was edited after its installation; delete it yourself"
        raise InvalidConfiguration(str(file), problem)
    for copy in (before, installed):
        copy.unlink(missing_ok=True)
    return True


def _copies(file: Path) -> tuple[Path, Path]:
    return file.with_name(f"{file.name}.before-temper"), file.with_name(f"{file.name}.by-temper")


def _replace(file: Path, content: bytes) -> None:
    """Replace the content atomically, so that a crash leaves either the old or the new content.

    If the file is a symbolic link, the target is replaced, not the link: dotfiles in a repository
    are often links. The file keeps its mode.
    """
    target = file.resolve()
    temporary = target.with_name(f"{target.name}.temper-{os.getpid()}")
    temporary.write_bytes(content)
    with contextlib.suppress(FileNotFoundError):
        temporary.chmod(target.stat().st_mode)
    temporary.replace(target)


def _read(file: Path) -> JsonObject:
    return _parse(file, file.read_bytes()) if file.exists() else {}


def _parse(file: Path, content: bytes) -> JsonObject:
    try:
        value = json.parse(content) if content.strip() else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        problem = "is not a JSON object without comments; add the output of --print to it yourself"
        raise InvalidConfiguration(str(file), problem)
    return value


def _as_text(value: JsonObject) -> str:
    return f"{msgspec.json.format(json.dump_text(value), indent=2)}\n"


def _merge(base: JsonObject, entries: JsonObject) -> JsonObject:
    """Return `base` with the entries; objects are merged, other values are replaced."""
    merged = dict(base)
    for name, value in entries.items():
        old = merged.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merge(old, value)
        merged[name] = value
    return merged


def _restore(current: JsonObject, installed_values: JsonObject, old: JsonObject) -> JsonObject:
    """Return `current` with the `old` values of all entries that still have Temper's values.

    An entry that differs from Temper's value was edited by the user, and is not changed.
    """
    restored: JsonObject = {}
    for name, value in current.items():
        before: JsonValue = old.get(name)
        installed = installed_values.get(name)
        if isinstance(value, dict) and isinstance(installed, dict):
            inner = _restore(value, installed, before if isinstance(before, dict) else {})
            if inner or isinstance(before, dict):
                restored[name] = inner
        elif name in installed_values and value == installed:
            if name in old:
                restored[name] = before
        else:
            restored[name] = value
    return restored
