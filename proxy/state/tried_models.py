"""What was measured of models on this machine: a small JSON file for each, in the cache folder.

A model under another template, or on another build, is measured anew and has a file of its own. So
nobody has to wait for anybody: a file is replaced as a whole, and one that is broken is not there.
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

_VERSION = 1
_MOST = 256
_LARGEST = 64 * 1024
_DIGEST_LENGTH = 16

Figure: TypeAlias = bool | int | float | str | list[str] | None


class TriedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model as it was measured; `measured` are the figures, by what they are of.

    `identity` tells it from others, `template` is the digest of its chat template, and `server`
    what ran it. `tried_at` is a time as RFC 3339 has it; `failed` are the checks that it failed.
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
        """The name of its file: what else is of these three is the same model, measured again."""
        return digest("\0".join((self.identity, self.template, self.server)))


def digest(text: str) -> str:
    """Return a short digest of a text, nothing for nothing."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH] if text else ""


def cache_folder(environment: Mapping[str, str] = os.environ, kind: str = "tried") -> Path | None:
    """Return where the files are, by the rules of XDG; None where there is no home."""
    named = environment.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named, "temper", kind)
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "temper" / kind
    return None


@dataclass(frozen=True, slots=True)
class TriedModels:
    """What was measured of models, in the files of one folder; without one nothing is kept."""

    folder: Path | None = None

    def all(self) -> tuple[TriedModel, ...]:
        """Return every model that was tried, the last one first; never raises."""
        read = (_read(file) for file in self._files())
        return tuple(sorted(filter(None, read), key=lambda one: one.tried_at, reverse=True))

    def latest(self, identity: str, template: str) -> TriedModel | None:
        """Return what was measured last of a model with this chat template, given as it is."""
        wanted = (identity, digest(template))
        return next((one for one in self.all() if (one.identity, one.template) == wanted), None)

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
        with suppress(OSError):  # somebody else was faster
            files = sorted(self._files(), key=lambda file: file.stat().st_mtime, reverse=True)
            for one in files[_MOST:]:
                one.unlink()
        return True

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        try:
            return [*self.folder.glob("*.json")]
        except OSError:
            return []


def _read(file: Path) -> TriedModel | None:
    """Return what a file holds, None if it is not one of ours."""
    try:
        if file.stat().st_size > _LARGEST:
            return None
        found = msgspec.json.decode(file.read_bytes(), type=TriedModel)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return found if found.version == _VERSION else None
