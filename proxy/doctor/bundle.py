"""Everything that a bug report needs, in one archive without secrets."""

import platform
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from proxy.api.observing import secrets_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.doctor.finding import Examined
from proxy.doctor.report import document
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings

_NAMES = ("api_key", "headers", "key", "token", "secret", "password", "authorization")
_HIDDEN = "(hidden)"


def write_bundle(path: Path, settings: Settings, examined: Sequence[Examined]) -> None:
    """Write findings, settings and versions; raises InvalidConfiguration if that is impossible."""
    told, secrets = json.parse(settings.model_dump_json()), frozenset(secrets_of(settings))
    contents: dict[str, JsonValue] = {
        "findings.json": redacted(document(examined), secrets),
        "settings.json": redacted(told, secrets),
        "environment.json": _environment(),
    }
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, _without_home(json.dump_text(content)))
    except OSError as error:
        raise InvalidConfiguration("--bundle", f"cannot write {path}: {error.strerror}") from error


def redacted(value: JsonValue, secrets: frozenset[str] = frozenset()) -> JsonValue:
    """Hide what a member's name says is secret, and every text that holds a known secret."""
    match value:
        case dict():
            return {
                name: _HIDDEN if _is_secret(name) and inner else redacted(inner, secrets)
                for name, inner in value.items()
            }
        case list():
            return [redacted(inner, secrets) for inner in value]
        case str() if any(secret in value for secret in secrets):
            return _HIDDEN
        case _:
            return value


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _NAMES)


def _environment() -> JsonObject:
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libraries": {
            one.metadata["Name"]: one.version
            for one in sorted(distributions(), key=lambda one: one.metadata["Name"].lower())
        },
    }


def _without_home(text: str) -> str:
    """Hide whose machine it is."""
    return text.replace(str(Path.home()), "~")
