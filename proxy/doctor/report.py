"""Output of the checks: text, JSON, a ZIP file for bug reports, and stored measurements."""

import platform
import sys
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from rich.text import Text

from proxy.api.observing import secrets_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.doctor.target import CheckResult, Target
from proxy.doctor.versions import describe_versions
from proxy.errors import InvalidConfiguration
from proxy.observability.recording import Redaction
from proxy.observability.sentences import visible
from proxy.profiles.tried_models import Figure, TriedModel, digest
from proxy.settings import Settings

# status -> the mark at the start of a line, and its style
_MARKS = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("fail", "bold red"),
    "skipped": ("-", "dim"),
}
_TITLE_WIDTH = 18  # characters of the longest title, "Claude Code answer"


def line(result: CheckResult, before: Sequence[CheckResult] = ()) -> Text:
    """Format a finding and its remedy; the name of a model precedes its first finding."""
    finding = result.finding
    text = Text()
    if result.model and (not before or before[-1].model != result.model):
        text.append(f"\n{visible(result.model)}\n", "bold")
    mark, color = _MARKS[finding.status]
    text.append(f"{mark:5}", color)
    text.append(f"{result.title:{_TITLE_WIDTH}} ")
    text.append(visible(finding.summary), "dim" if finding.status == "skipped" else "")
    if finding.remedy:
        text.append(f"\n{'':5}{'':{_TITLE_WIDTH}} -> {visible(finding.remedy)}", "italic")
    if finding.copy:
        text.append(f"\n\n{finding.copy}\n")
    return text


def summary(results: Sequence[CheckResult]) -> str:
    statuses = [result.finding.status for result in results]
    failures, warnings = statuses.count("fail"), statuses.count("warn")
    if not failures and not warnings:
        return f"All {statuses.count('ok')} checks passed."
    return f"{statuses.count('ok')} checks passed, {warnings} warned, {failures} failed."


def has_no_failure(results: Sequence[CheckResult]) -> bool:
    """Return True if no check failed; warnings are allowed."""
    return all(result.finding.status != "fail" for result in results)


def document(results: Sequence[CheckResult]) -> JsonObject:
    return {
        "ok": has_no_failure(results),
        "checks": [
            {
                "model": result.model,
                "check": result.title,
                "status": result.finding.status,
                "found": result.finding.summary,
                "remedy": result.finding.remedy,
                "copy": result.finding.copy,
            }
            for result in results
        ],
    }


def write_bundle(path: Path, settings: Settings, results: Sequence[CheckResult]) -> None:
    """Write findings, settings and versions without secrets into a ZIP file.

    Raises `InvalidConfiguration` if the file cannot be written.
    """
    redact = Redaction(secrets_of(settings)).redact
    contents: dict[str, JsonValue] = {
        "findings.json": redact(document(results)),
        "settings.json": redact(json.parse(settings.model_dump_json())),
        "environment.json": _environment(),
    }
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                # the path of the home directory contains the user's name
                archive.writestr(name, json.dump_text(content).replace(str(Path.home()), "~"))
    except OSError as error:
        raise InvalidConfiguration("--bundle", f"cannot write {path}: {error.strerror}") from error


def _environment() -> JsonObject:
    return {
        **describe_versions(),
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libraries": {
            distribution.metadata["Name"]: distribution.version
            for distribution in sorted(
                distributions(), key=lambda installed: installed.metadata["Name"].lower()
            )
        },
    }


NOTHING_TRIED = "No measurements yet. Run 'temper doctor' to measure a model."

_ROW_TITLE_WIDTH = 6


def build_tried_model(target: Target, results: Sequence[CheckResult], temper: str) -> TriedModel:
    known = target.known
    measured: dict[str, Figure] = {"capabilities": [*known.capabilities]}
    if known.engine:
        measured |= {"engine": known.engine, "engine_lacks": [*known.lacks]}
    for result in results:
        measured |= result.finding.measured
    findings = {result.title: result.finding.summary for result in results}
    return TriedModel(
        name=target.settings.model.alias or target.model,
        identity=known.identity or target.model,
        template=digest(known.evidence.template),
        server=findings.get("version", ""),
        tried_at=datetime.now(UTC).isoformat(timespec="seconds"),
        temper=temper,
        measured=measured,
        failed=tuple(result.title for result in results if result.finding.status == "fail"),
    )


def describe_tried(tried: Sequence[TriedModel]) -> Text:
    """Describe each measured model in a block of lines."""
    return Text("\n\n").join(map(_block, tried))


def _block(model: TriedModel) -> Text:
    figures = model.measured
    window, reads, writes = (
        _figure(figures.get(name)) for name in ("window", "reads_per_second", "writes_per_second")
    )
    rows = {
        "server": model.server,
        "tried": model.tried_at[: len("2026-01-01")],
        "calls": _figure(figures.get("calls")),
        "window": window and f"{window} tokens",
        "reads": reads and f"{reads} tokens/s",
        "writes": writes and f"{writes} tokens/s",
        "failed": ", ".join(model.failed),
    }
    block = Text(visible(model.name), "bold")
    for title, value in rows.items():
        if value:
            block.append(f"\n  {title:{_ROW_TITLE_WIDTH}} {visible(value)}", "not bold")
    return block


def _figure(value: Figure) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if isinstance(value, int | float) else str(value)


def build_tried_document(tried: Sequence[TriedModel]) -> JsonObject:
    names = ("identity", "template", "server", "tried_at", "temper", "measured")
    listed: list[JsonValue] = [
        {
            "id": model.name,
            **{name: getattr(model, name) for name in names},
            "failed": [*model.failed],
        }
        for model in tried
    ]
    return {"models": listed}
