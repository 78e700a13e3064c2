"""`temper tune`: flags in, a verdict for each setting out, and a file that `temper serve` takes."""

import asyncio
import contextlib
import hashlib
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from pydantic import TypeAdapter
from rich.console import Console

from proxy.cli.commands import print_json
from proxy.cli.running import load
from proxy.cli.signals import INTERRUPTED
from proxy.cli.usage import Command
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.processes.launch import LaunchPlan, find_program
from proxy.processes.llama_server import start_llama_server
from proxy.profiles.known_model import KnownModel
from proxy.serving.assembly import service_options_of
from proxy.serving.opening import find_backend, open_services, server_urls, with_backend
from proxy.serving.tuned import TunedSettings, keys_of
from proxy.settings import Settings
from proxy.state.tried_models import cache_folder
from temper_evals.endpoints import find_target
from temper_evals.evaluation import check_extra
from temper_evals.loop import ModelTarget
from temper_evals.model_setups import ModelSetup, ServedSetup, simulated_setup
from temper_evals.records import Records, protocol_hash
from temper_evals.scenarios.scenario import Scenario
from temper_evals.scenarios.suite import FAMILIES, suite
from temper_evals.tiny_model import shipped
from temper_evals.tiny_suite import tiny_suite
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
    key_of,
)

_FLAG = "temper tune"
_WINDOW, _SLOTS = 8192, 4
_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is tuned: a bed with its cases, and what the result depends on where that is known."""

    bed: ModelSetup
    scenarios: list[Scenario]
    keys: Mapping[str, str]
    candidates: Sequence[Candidate] = CANDIDATES
    most_seeds: int | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """The flags that say what is tuned, and how."""

    model: str = ""
    backend_url: str | None = None
    tiny: bool = False
    profile: str | None = None
    minutes: float = 10.0
    dry_run: bool = False
    resume: bool = False


@click.command("tune", cls=Command, short_help="Find out which settings help your model.")
@click.option("--model", default="", help="Which of the server's models, if it has more.")
@click.option("--backend-url", help="A server that runs; default: that of temper.toml, or found.")
@click.option("--tiny", is_flag=True, help="The tiny model that comes with Temper.")
@click.option("--profile", help="A simulated model, to see how it is decided; nothing is written.")
@click.option("--minutes", type=click.FloatRange(min=0), default=10.0, show_default=True)
@click.option("--dry-run", is_flag=True, help="Write no settings.")
@click.option("--resume", is_flag=True, help="Go on with the runs of the last time.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings; default: temper.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def tune(*, config: Path | None, as_json: bool, **flags: object) -> None:
    """Find out which settings help your model, and have `temper serve` use them.

    Each setting that may change a good turn is tried on and off on the same tasks, until a
    sequential test decides: efforts of thinking, where the model's profile knows them, tools
    described in the prompt, where the engine takes them itself, the text policy respond, and a
    question behind every end. Ctrl-C keeps what is decided.
    """
    check_extra()
    choice = TypeAdapter(_Choice).validate_python(flags)
    url = choice.backend_url
    settings = load(config, {"backend": {"url": url}} if url else None, level="warning")
    verdicts: list[Verdict] = []
    is_done, path = asyncio.run(_tune(settings, choice, verdicts, _Teller(is_quiet=as_json)))
    if as_json:
        listed: list[JsonValue] = [one.document() for one in verdicts]
        print_json({"verdicts": listed, "written": None if path is None else str(path)})
    if not is_done:
        click.echo("Stopped; go on with: temper tune --resume", err=True)
        sys.exit(INTERRUPTED)


async def _tune(
    settings: Settings, choice: _Choice, verdicts: list[Verdict], told: "_Teller"
) -> tuple[bool, Path | None]:
    """Try everything; returns whether it came to its end, and what was written."""
    folder = cache_folder(kind="tuned")
    if folder is None:
        raise InvalidConfiguration(_FLAG, "there is no home folder: set XDG_CACHE_HOME")
    is_done, base = True, _base_of(settings)
    async with _open(settings, choice) as subject:
        records = _records(folder, subject, base, resumes=choice.resume)
        with contextlib.closing(records), told:
            try:
                async with subject.bed.open(is_ceiling=False) as target:
                    tuning = Tuning(
                        TemperRunners(target, subject.bed, records).open,
                        subject.scenarios,
                        60 * choice.minutes,
                        base,
                        subject.most_seeds,
                        subject.candidates,
                        on_progress=told.show,
                        verdicts=verdicts,
                    )
                    await tuning.run()
            except asyncio.CancelledError:
                is_done = False
    told.end(verdicts, base)
    if not subject.keys or choice.dry_run:
        return is_done, None
    path = write_earned(folder / f"{subject.bed.name}.toml", subject.keys, earned_by(verdicts))
    told.say(f"Written: {path}; 'temper serve' takes it as long as nothing changes.")
    return is_done, path


def _base_of(settings: Settings) -> Values:
    """Return what the operator has decided, which holds for every Temper that is tried."""
    sections = {"guardrails": settings.guardrails, "profile": settings.profile}
    found: dict[str, dict[str, JsonValue]] = {
        name: one.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for name, one in sections.items()
    }
    if folder := settings.profile.folder:
        found["profile"]["folder"] = str(folder.absolute())
    return {name: one for name, one in found.items() if one}


@asynccontextmanager
async def _open(settings: Settings, choice: _Choice) -> AsyncGenerator[_Subject, None]:
    """Open what is to be tuned; raises InvalidConfiguration."""
    cases, _ = halves(suite("full", [one for one in FAMILIES if one != "long"]))
    if choice.profile is not None:
        yield _Subject(simulated_setup(choice.profile), cases, {})
        return
    async with AsyncExitStack() as stack:
        target, kind = await _find(settings, choice, stack)
        known = await look_up(settings, target, kind)
        bed = ServedSetup(_NAME.sub("_", known.identity), target)
        if choice.tiny:  # it answers the same whatever the seed
            cases, _ = halves(tiny_suite("full"))
        seeds = 1 if choice.tiny else None
        yield _Subject(bed, cases, keys_of(known), candidates_for(known), seeds)


async def _find(
    settings: Settings, choice: _Choice, stack: AsyncExitStack
) -> tuple[ModelTarget, str]:
    """Return the server that is tuned, started where the settings name a file, and its kind."""
    source = shipped.MODEL_FILE if choice.tiny else settings.model.source
    if source is None:
        named = with_backend(settings, await find_backend(settings, (), "tune"))
        urls = server_urls(named)
        if not urls:
            problem = "several models share this Temper: name a server with --backend-url"
            raise InvalidConfiguration(_FLAG, problem)
        key = named.backend.api_key
        target = await find_target("--backend-url", urls[0], choice.model)
        headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        return ModelTarget(target.url, target.model, headers), named.backend.kind
    name = settings.model.alias or (source.stem if isinstance(source, Path) else source)
    window = settings.model.context_tokens or _WINDOW
    launch = LaunchPlan(find_program(settings.model.server), source, window, _SLOTS, alias=name)
    if choice.tiny:
        extra = shipped.FLAGS
        launch = LaunchPlan(
            find_program(), source, shipped.WINDOW, _SLOTS, name, gpu_layers=0, extra=extra
        )
    running = await stack.enter_async_context(start_llama_server(launch))
    headers = {"authorization": f"Bearer {running.api_key}"}
    return ModelTarget(running.base_url, name, headers), "auto"


async def look_up(settings: Settings, target: ModelTarget, kind: str) -> KnownModel:
    """Ask what the result depends on, as `temper serve` does when it takes it."""
    key = key_of(target) or None
    named = {**settings.backend.model_dump(exclude_unset=True), "url": target.url, "kind": kind}
    backend = type(settings.backend).model_validate({**named, "api_key": key})
    alone = Settings(backend=backend, profile=settings.profile)
    # what was earned before says nothing of what the engine takes by itself
    options = replace(service_options_of(alone), tuned=TunedSettings())
    async with open_services(alone, options, lambda _stage: None) as services:
        _, known = await services.identify(target.model)
    return known


def _records(folder: Path, subject: _Subject, base: Values, *, resumes: bool) -> Records:
    """Open the records of runs under the same conditions; afresh unless it resumes."""
    names = [one.name for one in subject.scenarios]
    depends: JsonObject = {
        **subject.keys,
        "base": describe(base),
        "cases": json.dump_text([*names]),
    }
    told = json.dump({**depends, "protocol": protocol_hash()})
    digest = hashlib.blake2b(told, digest_size=6).hexdigest()
    place = folder / "runs" / f"{subject.bed.name}-{digest}"
    if not resumes:
        shutil.rmtree(place, ignore_errors=True)
    return Records(place, {"hash": digest})


def write_earned(path: Path, keys: Mapping[str, str], earned: Values) -> Path:
    """Write what `temper serve` takes as long as all keys fit."""
    sections = {"keys": keys, "profile": {}, "guardrails": {}, **earned}
    lines = ["# written by `temper tune`, and dropped by `temper serve` when a key does not fit"]
    for name, found in sections.items():
        lines += [
            "",
            f"[{name}]",
            *(f"{key} = {json.dump_text(one)}" for key, one in found.items()),
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class _Teller:
    """Tells how far a comparison is in one line, and every verdict in a line that stays."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=is_quiet)
        # lines of a file are not broken
        self._out = Console(highlight=False, quiet=is_quiet, soft_wrap=not sys.stdout.isatty())
        self._is_live = False
        self._status = self._console.status("Starting ...")

    def __enter__(self) -> None:
        self._is_live = True
        self._status.start()

    def __exit__(self, *_: object) -> None:
        self._is_live = False
        self._status.stop()

    def show(self, verdict: Verdict) -> None:
        if verdict.is_over:
            self.say(verdict.sentence())
        test = verdict.test
        counted = f"{test.pairs} cases, {test.helped} helped, {test.harmed} harmed"
        self._status.update(f"{verdict.candidate.name}: {counted}")

    def end(self, verdicts: list[Verdict], base: Values) -> None:
        for one in verdicts:
            if not one.is_over:  # it was stopped
                self.say(one.sentence())
        own = ", ".join(f"{name} = {one}" for each in base.values() for name, one in each.items())
        if own:
            self.say(f"Left as your settings have it: {own}")

    def say(self, line: str) -> None:
        self._status.stop()
        self._out.print(line)
        if self._is_live:
            self._status.start()
