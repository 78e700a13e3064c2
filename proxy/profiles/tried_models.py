"""Measurements of models on this machine, in small JSON files in the cache folder.

There is a separate file for each combination of model, template and engine version. No locks are
needed: files are replaced atomically, and a corrupt file counts as missing.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from proxy import bounds

_VERSION = 1  # version of the file format; a file with another version counts as missing
_MOST = 256  # files; saving another file removes the oldest
_DIGEST_LENGTH = 16  # hexadecimal digits

Figure: TypeAlias = bool | int | float | str | list[str] | None


class TriedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The values that were `measured` for one model, by name, and the names of `failed` checks.

    `identity` identifies the model, `template` is the digest of its chat template, and `server` is
    the engine with its version. `tried_at` is a time in RFC 3339 format.
    """

    name: str
    identity: str
    template: str
    server: str
    tried_at: str
    temper: str
    measured: dict[str, Figure] = {}
    failed: tuple[str, ...] = ()
    version: int = _VERSION

    @property
    def key(self) -> str:
        """The name of the file: a digest of identity, template and server."""
        return digest("\0".join((self.identity, self.template, self.server)))


def digest(text: str) -> str:
    """Return a short digest of a text, "" for ""."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH] if text else ""


def cache_folder(environment: Mapping[str, str] = os.environ, kind: str = "tried") -> Path | None:
    """Return the folder of the files (XDG base directories); None without a home folder."""
    configured = environment.get("XDG_CACHE_HOME", "")
    if Path(configured).is_absolute():
        return Path(configured, "temper", kind)
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "temper" / kind
    return None


@dataclass(frozen=True, slots=True)
class TriedModels:
    """The measurements in the files of a folder; without a folder, nothing is stored."""

    folder: Path | None = None

    def all(self) -> tuple[TriedModel, ...]:
        """Return every measured model, the latest first; never raises."""
        read = (_read(file) for file in self._files())
        return tuple(sorted(filter(None, read), key=lambda tried: tried.tried_at, reverse=True))

    def latest(self, identity: str, template: str) -> TriedModel | None:
        """Return the latest measurement of a model; `template` is the text of its template."""
        key = (identity, digest(template))
        return next(
            (tried for tried in self.all() if (tried.identity, tried.template) == key), None
        )

    def save(self, tried: TriedModel) -> bool:
        """Write the measurements into a file; return False if that is impossible."""
        if self.folder is None:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".new", delete=False) as file:
                file.write(msgspec.json.format(msgspec.json.encode(tried)))
            Path(file.name).replace(self.folder / f"{tried.key}.json")
        except OSError:
            return False
        with suppress(OSError):  # another process may have removed a file
            files = sorted(self._files(), key=lambda file: file.stat().st_mtime, reverse=True)
            for path in files[_MOST:]:
                path.unlink()
        return True

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        try:
            return [*self.folder.glob("*.json")]
        except OSError:
            return []


def _read(file: Path) -> TriedModel | None:
    """Read a file; None if it is invalid."""
    try:
        if file.stat().st_size > bounds.TRIED_BYTES:
            return None
        tried = msgspec.json.decode(file.read_bytes(), type=TriedModel)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return tried if tried.version == _VERSION else None
