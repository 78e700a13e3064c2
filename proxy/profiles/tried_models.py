"""Measurements of models on this machine: a small JSON file for each, in the cache folder.

A model with another template, or on another build, has another file. So no locks are needed: a file
is replaced as a whole, and a broken one counts as missing.
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

_VERSION = 1  # of the file; files of another version count as missing
_MOST = 256
_DIGEST_LENGTH = 16

Figure: TypeAlias = bool | int | float | str | list[str] | None


class TriedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One measured model; `measured` has the figures by name.

    `identity` distinguishes it from others, `template` is the digest of its chat template, and
    `server` the engine that ran it. `tried_at` is in RFC 3339; `failed` are the failed checks.
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
        """The name of its file: equal identity, template and server mean the same model."""
        return digest("\0".join((self.identity, self.template, self.server)))


def digest(text: str) -> str:
    """Return a short digest of a text, "" for ""."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH] if text else ""


def cache_folder(environment: Mapping[str, str] = os.environ, kind: str = "tried") -> Path | None:
    """Return the folder of the files, by the rules of XDG; None without a home folder."""
    named = environment.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named, "temper", kind)
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "temper" / kind
    return None


@dataclass(frozen=True, slots=True)
class TriedModels:
    """The measurements in the files of one folder; without a folder nothing is stored."""

    folder: Path | None = None

    def all(self) -> tuple[TriedModel, ...]:
        """Return every measured model, the latest first; never raises."""
        read = (_read(file) for file in self._files())
        return tuple(sorted(filter(None, read), key=lambda tried: tried.tried_at, reverse=True))

    def latest(self, identity: str, template: str) -> TriedModel | None:
        """Return the latest measurement of a model with this chat template, given in full."""
        wanted = (identity, digest(template))
        return next(
            (tried for tried in self.all() if (tried.identity, tried.template) == wanted), None
        )

    def remember(self, tried: TriedModel) -> bool:
        if self.folder is None:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".new", delete=False) as file:
                file.write(msgspec.json.format(msgspec.json.encode(tried)))
            Path(file.name).replace(self.folder / f"{tried.key}.json")
        except OSError:
            return False
        with suppress(OSError):  # another process may have removed it
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
    """Read a file; None if it is not valid."""
    try:
        if file.stat().st_size > bounds.TRIED_BYTES:
            return None
        tried = msgspec.json.decode(file.read_bytes(), type=TriedModel)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return tried if tried.version == _VERSION else None
