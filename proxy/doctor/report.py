"""What the checks came to, for people and for programs."""

from collections.abc import Sequence

from rich.text import Text

from proxy.conversation.json import JsonObject
from proxy.doctor.finding import Examined, Status

_COLOURS = {
    Status.OK: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIPPED: "dim",
}
_MARKS = {Status.OK: "ok", Status.WARN: "warn", Status.FAIL: "fail", Status.SKIPPED: "-"}
_TITLE_WIDTH = 18


def line(examined: Examined, before: Sequence[Examined] = ()) -> Text:
    """Write a finding, and below it the remedy; the first one of a model has its name above."""
    found = examined.finding
    text = Text()
    if examined.model and (not before or before[-1].model != examined.model):
        text.append(f"\n{examined.model}\n", "bold")
    text.append(f"{_MARKS[found.status]:5}", _COLOURS[found.status])
    text.append(f"{examined.title:{_TITLE_WIDTH}} ")
    text.append(found.said, "dim" if found.status is Status.SKIPPED else "")
    if found.remedy:
        text.append(f"\n{'':5}{'':{_TITLE_WIDTH}} -> {found.remedy}", "italic")
    if found.copy:
        text.append(f"\n\n{found.copy}\n")
    return text


def summary(examined: Sequence[Examined]) -> str:
    """Count the findings in one sentence."""
    found = [one.finding.status for one in examined]
    failures, warnings = found.count(Status.FAIL), found.count(Status.WARN)
    if not failures and not warnings:
        return f"All is well: {found.count(Status.OK)} checks."
    return f"{found.count(Status.OK)} checks are fine, {warnings} warn, {failures} fail."


def is_well(examined: Sequence[Examined]) -> bool:
    """Return whether nothing failed; a warning is no failure."""
    return all(one.finding.status is not Status.FAIL for one in examined)


def document(examined: Sequence[Examined]) -> JsonObject:
    """Return everything that was found, for programs."""
    return {
        "ok": is_well(examined),
        "checks": [
            {
                "model": one.model,
                "check": one.title,
                "status": one.finding.status.value,
                "found": one.finding.said,
                "remedy": one.finding.remedy,
                "copy": one.finding.copy,
            }
            for one in examined
        ],
    }
