"""`temper tune`: prints a verdict for each setting, and writes a file for `temper serve`."""

import asyncio
import contextlib
import hashlib
import math
import re
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import TypeAdapter

from proxy.backends.detection import FoundServer
from proxy.cli.commands import print_json
from proxy.cli.output import echo
from proxy.cli.running import Flags, load, run
from proxy.cli.safe_console import SafeConsole
from proxy.cli.status_line import StatusLine, format_seconds, open_status_line
from proxy.cli.usage import Command
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.observability.sentences import visible
from proxy.profiles.tried_models import cache_folder
from proxy.profiles.tuned import keys_of
from proxy.serving.opening import find_backend, server_urls, with_backend
from proxy.settings import Settings
from temper_evals.endpoints import find_target, look_up
from temper_evals.evaluation import check_extra
from temper_evals.loop import ModelTarget
from temper_evals.model_setups import (
    ModelSetup,
    OnStep,
    ServedSetup,
    plan_launch,
    simulated_setup,
    start_model,
)
from temper_evals.records import Records, protocol_hash
from temper_evals.runs import RunsInProgress
from temper_evals.scenarios.scenario import Scenario
from temper_evals.scenarios.suite import FAMILIES, suite
from temper_evals.tuning import (
    CANDIDATES,
    Candidate,
    TemperRunners,
    Tuning,
    Values,
    Verdict,
    candidates_for,
    describe,
    earned_by,
    halves,
)

_FLAG = "temper tune"
# The factor for the advised minutes if no case was finished: the speed of the model is unknown.
_MORE_TIME = 4
_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class _Subject:
    """The model to tune, its cases, and the identity of the model and its server, if known."""

    bed: ModelSetup
    scenarios: list[Scenario]
    keys: Mapping[str, str]
    candidates: Sequence[Candidate] = CANDIDATES


@dataclass(frozen=True, slots=True)
class _Choice:
    """The flags that select the model and the procedure."""

    model: str = ""
    backend_url: str | None = None
    backend_model: str = ""
    ollama: str | None = None
    profile: str | None = None
    minutes: float = 10.0
    dry_run: bool = False
    resume: bool = False

    @property
    def model_file(self) -> Path | None:
        """The GGUF file to start a server for; None if --model is a model of a running server."""
        is_file = self.model.lower().endswith(".gguf") or Path(self.model).is_file()
        return Path(self.model) if is_file else None

    @property
    def served_model(self) -> str:
        """The selected model of a server; "" if it has only one."""
        return self.ollama or self.backend_model or self.model

    def settings(self) -> Flags:
        return {
            "backend": {"url": self.backend_url, "kind": "ollama" if self.ollama else None},
            "ollama": {"model": self.ollama},
            "model": {"path": self.model_file},
        }


@click.command("tune", cls=Command, short_help="Find the settings that help your model.")
@click.option(
    "--model",
    default="",
    metavar="FILE",
    help="A GGUF file to start a server for, or a model of the server.",
)
@click.option(
    "--backend-url", help="A running server; default: that of temper.toml, or a detected one."
)
@click.option("--backend-model", default="", help="The model to use, if the server has several.")
@click.option("--ollama", help="A model of the Ollama on this machine, or at OLLAMA_HOST.")
@click.option("--profile", help="Tune a simulated model as an example; writes nothing.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Time limit; running generations are canceled.",
)
@click.option("--dry-run", is_flag=True, help="Write no settings.")
@click.option("--resume", is_flag=True, help="Continue with the runs of the last time.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings; default: temper.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def tune(*, config: Path | None, as_json: bool, **flags: object) -> None:
    """Find the settings that help your model, for use by `temper serve`.

    Each setting that may change a good turn is tried on and off on the same tasks, until a
    sequential test decides: reasoning efforts, if the model's profile has them, tools described in
    the prompt, if the engine supports tools itself, the text policy respond, and close-out checks.
    Ctrl-C keeps all decisions so far.
    """
    check_extra()
    choice = TypeAdapter(_Choice).validate_python(flags)
    if choice.model_file is not None and (choice.backend_url or choice.ollama):
        other = "--backend-url" if choice.backend_url else "--ollama"
        raise InvalidConfiguration("--model", f"starts a server for a file: remove {other}")
    settings = load(config, choice.settings(), level="warning")

    async def work() -> bool:
        with open_status_line(is_wanted=not as_json) as status:
            display = _ProgressDisplay(status, 60 * choice.minutes, is_quiet=as_json)
            try:
                path = await _tune(settings, choice, display)
            except asyncio.CancelledError:  # before the first measurement
                path, display.is_stopped = None, True
        if as_json:
            listed: list[JsonValue] = [verdict.document() for verdict in display.verdicts]
            print_json({"verdicts": listed, "written": None if path is None else str(path)})
        if display.is_stopped:
            cases = sum(verdict.test.pairs for verdict in display.verdicts)
            sentence = f"Stopped after {cases} cases."
            if cases:
                sentence += " To continue, add --resume to the same command."
            echo(sentence, err=True)
        return not display.is_stopped

    run(work())


async def _tune(settings: Settings, choice: _Choice, display: "_ProgressDisplay") -> Path | None:
    """Try all candidates until the time is over or Ctrl-C; returns the written file.

    Raises `CancelledError` only for a Ctrl-C before the first comparison.
    """
    missing_seconds: float | None = None
    folder = cache_folder(kind="tuned")
    if folder is None:
        raise InvalidConfiguration(_FLAG, "no home folder: set XDG_CACHE_HOME")
    base, verdicts = _base_of(settings), display.verdicts
    display.status.begin("starting")
    async with _open(settings, choice, display.status.begin) as subject:
        records = _records(folder, subject, base, resumes=choice.resume)
        with contextlib.closing(records):
            try:
                async with subject.bed.open(is_ceiling=False) as target:
                    tuning = Tuning(
                        TemperRunners(target, subject.bed, records, display.in_progress).open,
                        subject.scenarios,
                        60 * choice.minutes,
                        base,
                        candidates=subject.candidates,
                        on_progress=display.show,
                        on_step=display.begin,
                        verdicts=verdicts,
                    )
                    display.start()
                    await tuning.run()
                    missing_seconds = tuning.estimate_missing_seconds()
            except asyncio.CancelledError:
                display.is_stopped = True
            display.status.begin("stopping")
    display.end(base)
    if any(verdict.lacks_time for verdict in verdicts) and not display.is_stopped:
        display.say(advise_minutes(choice.minutes, missing_seconds))
    if not subject.keys or choice.dry_run:
        return None
    return _write(folder / f"{subject.bed.name}.toml", subject.keys, display)


def _write(path: Path, keys: Mapping[str, str], display: "_ProgressDisplay") -> Path | None:
    """Write the earned settings; without a finished case, an existing file stays unchanged."""
    is_measured = any(verdict.test.pairs for verdict in display.verdicts)
    if not is_measured and path.exists():
        display.say(f"Unchanged: {path}")
    if not is_measured and (display.is_stopped or path.exists()):
        return None
    write_earned(path, keys, earned_by(display.verdicts))
    display.say(
        f"Written: {path}; 'temper serve' uses it until the model, its server or Temper changes."
    )
    return path


def advise_minutes(minutes: float, missing_seconds: float | None) -> str:
    """Return advice on --minutes, for a time that was too short."""
    if missing_seconds is None:
        enough = max(1, math.ceil(_MORE_TIME * minutes))
        return (
            f"The time was too short to finish a case with and without a setting. "
            f"Pass --minutes {enough}."
        )
    more = max(1, math.ceil(missing_seconds / 60))
    return (
        f"The time was too short to decide everything; undecided settings are off. "
        f"To continue, pass --resume --minutes {more}."
    )


def _base_of(settings: Settings) -> Values:
    """Return the operator's settings, which apply with and without every candidate."""
    sections = {"guardrails": settings.guardrails, "profile": settings.profile}
    settings_of: dict[str, dict[str, JsonValue]] = {
        name: value.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for name, value in sections.items()
    }
    if folder := settings.profile.folder:
        settings_of["profile"]["folder"] = str(folder.absolute())
    return {name: section for name, section in settings_of.items() if section}


@asynccontextmanager
async def _open(
    settings: Settings, choice: _Choice, on_step: OnStep
) -> AsyncGenerator[_Subject, None]:
    """Open the model to tune; raises InvalidConfiguration."""
    # without `long`: one case needs as many replies as all other families together
    cases, _ = halves(suite("full", [family for family in FAMILIES if family != "long"]))
    if choice.profile is not None:
        yield _Subject(simulated_setup(choice.profile), cases, {})
        return
    async with AsyncExitStack() as stack:
        target, kind = await _find(settings, choice, stack, on_step)
        on_step("identifying the model")
        known = await look_up(settings, target, kind)
        bed = ServedSetup(_NAME.sub("_", known.identity), target)
        yield _Subject(bed, cases, keys_of(known), candidates_for(known))


async def _find(
    settings: Settings, choice: _Choice, stack: AsyncExitStack, on_step: OnStep
) -> tuple[ModelTarget, str]:
    """Return the server to tune, and its kind; a model file gets a new server."""
    source = settings.model.source
    if source is None:
        named = with_backend(settings, await _find_server(settings, choice))
        urls = server_urls(named)
        if not urls:
            problem = "several models are configured: select a server with --backend-url"
            raise InvalidConfiguration(_FLAG, problem)
        key = named.backend.api_key
        flag = "--ollama" if choice.ollama else "--backend-url"
        secret = key.get_secret_value() if key else ""
        return await find_target(flag, urls[0], choice.served_model, secret), named.backend.kind
    name = settings.model.alias or (source.stem if isinstance(source, Path) else source)
    model = settings.model
    launch = plan_launch(source, name, server=model.server, window=model.context_tokens)
    return await stack.enter_async_context(start_model(launch, on_step)), "auto"


async def _find_server(settings: Settings, choice: _Choice) -> FoundServer | None:
    """Find a running server if the settings name none; raises InvalidConfiguration."""
    try:
        return await find_backend(settings, (), "tune")
    except InvalidConfiguration as error:
        if not choice.model:
            raise
        problem = f"no file {choice.model}, and no running server with such a model: "
        remedy = "pass a GGUF file, or the server with --backend-url"
        raise InvalidConfiguration("--model", problem + remedy) from error


def _records(folder: Path, subject: _Subject, base: Values, *, resumes: bool) -> Records:
    """Open the records of this model with these settings and tasks.

    Unless `resumes` is true, the runs of earlier commands are deleted.
    """
    names = [scenario.name for scenario in subject.scenarios]
    conditions: JsonObject = {
        **subject.keys,
        "base": describe(base),
        "cases": json.dump_text([*names]),
    }
    document = json.dump({**conditions, "protocol": protocol_hash()})
    digest = hashlib.blake2b(document, digest_size=6).hexdigest()
    runs_folder = folder / "runs" / f"{subject.bed.name}-{digest}"
    if not resumes:
        shutil.rmtree(runs_folder, ignore_errors=True)
    return Records(runs_folder, {"hash": digest})


def write_earned(path: Path, keys: Mapping[str, str], earned: Values) -> Path:
    """Write the earned settings to a file, which `temper serve` applies while all keys match."""
    sections = {"keys": keys, "profile": {}, "guardrails": {}, **earned}
    lines = ["# written by `temper tune`; `temper serve` ignores it when a key does not match"]
    for name, values in sections.items():
        lines += [
            "",
            f"[{name}]",
            *(f"{key} = {json.dump_text(value)}" for key, value in values.items()),
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class _ProgressDisplay:
    """Shows the current run in the status line, and prints a line for each verdict."""

    def __init__(self, status: StatusLine, seconds: float, *, is_quiet: bool) -> None:
        self.status, self.in_progress = status, RunsInProgress()
        self.verdicts: list[Verdict] = []
        self.is_stopped = False
        # no wrapping in files and pipes
        self._console = SafeConsole(quiet=is_quiet, soft_wrap=not sys.stdout.isatty())
        self._seconds, self._end, self._step = seconds, 0.0, ""

    def start(self) -> None:
        self._end = time.monotonic() + self._seconds
        self.status.begin(self._text)

    def begin(self, step: str) -> None:
        self._step = step

    def show(self, verdict: Verdict) -> None:
        if verdict.is_over:
            self._step = ""
            self.say(verdict.sentence())

    def end(self, base: Values) -> None:
        self.status.end()
        for verdict in self.verdicts:
            if not verdict.is_over:  # stopped by Ctrl-C
                self.say(verdict.sentence())
        settings = ", ".join(
            f"{name} = {value}" for each in base.values() for name, value in each.items()
        )
        if settings:
            self.say(f"Kept from your settings: {settings}")

    def say(self, line: str) -> None:
        self.status.clear()
        self._console.print(visible(line))

    def _text(self) -> str:
        left = format_seconds(self._end - time.monotonic())
        current = self.in_progress.describe() or "starting"
        counts = ""
        if self.verdicts and self.verdicts[-1].test.pairs:
            test = self.verdicts[-1].test
            counts = f"; {test.pairs} cases, {test.helped} helped, {test.harmed} harmed"
        return f"{left} left: {self._step and self._step + ', '}{current}{counts}"
