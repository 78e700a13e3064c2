"""What a check found, and the remedy: the words between the checks and the reports."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from proxy.state.tried_models import Figure


class Severity(Enum):
    """How bad it is; SKIPPED where the check could not be made or has no meaning."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


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
    return Finding(Severity.OK, said, copy=copy, measured=measured)


def warn(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding(Severity.WARN, said, remedy, measured=measured)


def fail(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding(Severity.FAIL, said, remedy, measured=measured)


def skip(said: str) -> Finding:
    return Finding(Severity.SKIPPED, said)
