"""What a check found, and the remedy: the words between the checks and the reports."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from proxy.state.tried_models import Figure

# How bad it is; SKIPPED where the check could not be made or has no meaning.
Severity: TypeAlias = Literal["ok", "warn", "fail", "skipped"]


class Finding(NamedTuple):
    """One result; `said` is a sentence without its full stop, `remedy` says what to do.

    `copy` are lines to be copied as they are; `measured` is what programs may want to know of it.
    """

    status: Severity
    said: str
    remedy: str = ""
    copy: str = ""
    measured: Mapping[str, Figure] = {}


class Examined(NamedTuple):
    """A check of a model (or of this machine, where that is ""), by its title."""

    title: str
    finding: Finding
    model: str = ""


def ok(said: str, copy: str = "", **measured: Figure) -> Finding:
    return Finding("ok", said, copy=copy, measured=measured)


def warn(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("warn", said, remedy, measured=measured)


def fail(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("fail", said, remedy, measured=measured)


def skip(said: str) -> Finding:
    return Finding("skipped", said)
