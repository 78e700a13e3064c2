"""The steps of `temper eval`: selects models, arms and scenarios, and makes the runs."""

import contextlib
import hashlib
import importlib.util
import os
import platform
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from proxy.backends.detection import ollama_url
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.processes.launch import LaunchPlan
from proxy.profiles.tuned import guardrails_digest
from temper_evals.arms import (
    CEILING,
    DIRECT,
    FULL_ARMS,
    QUICK_ARMS,
    TEMPER,
    Arm,
    choose_arms,
    names_without_parts,
)
from temper_evals.benchmarks import registry
from temper_evals.benchmarks.bfcl import TurnLoop
from temper_evals.bfcl import installed_data, load_bfcl
from temper_evals.cards.card import Environment
from temper_evals.cards.environment import (
    embedded_engine,
    file_environment,
    find_engine,
    note_environment,
    served_environment,
    simulated_environment,
)
from temper_evals.endpoints import find_target
from temper_evals.forge_checkout import load_forge
from temper_evals.loop import AgentLoop
from temper_evals.model_setups import (
    ModelSetup,
    OnStep,
    ServedSetup,
    SimulatedSetup,
    plan_launch,
    simulated_setup,
    start_model,
)
from temper_evals.records import Records, RunRecord, protocol_hash, read_protocol, read_runs
from temper_evals.reply_bed import RecordedSetup, load_replies
from temper_evals.runs import ArmProgress, EvaluationPlan, RunsInProgress, make_runs
from temper_evals.scenarios.files import load_scenarios
from temper_evals.scenarios.scenario import Scenario
from temper_evals.scenarios.suite import suite
from temper_evals.simulated.profiles import grid
from temper_evals.tags import with_names, with_tags
from temper_evals.tuning import halves

DEFAULT_PROFILE = "n-8b"
_BFCL = "bfcl:"
_LIBRARIES = ("jinja2", "matplotlib", "scipy")
# these options contain functions, which cannot be stored in the protocol
_NOT_STORED = frozenset({"extra_arms"})
# evaluations that differ only in these options may share a folder
_WITHOUT_EFFECT = frozenset({"pace", "keeps_all", "ollama_url"})


@dataclass(frozen=True, slots=True)
class EvaluationChoice:
    """The options of an evaluation.

    The models are simulated if there are no `models`, `backend_urls`, `ollama` or recorded replies.
    """

    suite: str = "quick"
    benchmark: str = ""
    seeds: int = 1
    profiles: tuple[str, ...] = ()
    has_grid: bool = False
    families: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    models: tuple[Path, ...] = ()
    backend_urls: tuple[str, ...] = ()
    backend_model: tuple[str, ...] = ()
    ollama: tuple[str, ...] = ()
    ollama_url: str = ""
    scenarios: Path | None = None
    forge_checkout: Path | None = None
    bfcl: Path | None = None
    replies: Path | None = None
    most: int | None = None
    untuned: bool = False
    pace: float = 0.02
    keeps_all: bool = False
    extra_arms: Mapping[str, Arm] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        return not (self.models or self.backend_urls or self.ollama or self.is_recorded)

    @property
    def is_recorded(self) -> bool:
        """True if no model generates replies: they were recorded, or are gold answers."""
        return self.replies is not None or registry.is_gold(self.benchmark)


def check_extra() -> None:
    """Raise InvalidConfiguration unless the extra `evals` is installed."""
    if missing := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        remedy = "install Temper with its extra `evals`, by: pip install 'temper-proxy[evals]'"
        raise InvalidConfiguration("temper eval", f"needs {', '.join(missing)}: {remedy}")


def arms_of(choice: EvaluationChoice) -> list[Arm]:
    """Return the arms; the ceiling of a real model is unknown, so it gets no arm `ceiling`."""
    usual: tuple[str, ...] = FULL_ARMS if choice.suite == "full" else QUICK_ARMS
    if choice.benchmark:
        usual = (DIRECT, TEMPER)
    if choice.is_recorded:
        usual = (TEMPER,)
    names = [*(choice.arms or usual), *names_without_parts(choice.without)]
    arms = choose_arms(names, choice.extra_arms)
    return arms if choice.is_simulated else [arm for arm in arms if arm.name != CEILING]


def scenarios_of(choice: EvaluationChoice) -> Sequence[Scenario]:
    """Return the scenarios that the options select; raises InvalidConfiguration."""
    return _with_chosen_names_and_tags(choice, _all_scenarios(choice))


def _with_chosen_names_and_tags(
    choice: EvaluationChoice, scenarios: Sequence[Scenario]
) -> Sequence[Scenario]:
    return with_names(with_tags(scenarios, choice.tags), choice.tasks)


def _all_scenarios(choice: EvaluationChoice) -> Sequence[Scenario]:
    category = choice.suite.removeprefix(_BFCL)
    is_bfcl = category != choice.suite
    if choice.is_simulated and (choice.scenarios or choice.forge_checkout or is_bfcl):
        problem = "requires a model: add --model, --backend-url or --ollama"
        raise InvalidConfiguration("--scenarios", problem)
    if choice.is_recorded:
        setups = _recorded_setups(choice)
        return max((setup.scenarios for setup in setups), key=len)
    if choice.benchmark:
        return registry.tasks_of(choice.benchmark, choice.most)
    if is_bfcl:
        return load_bfcl(choice.bfcl or installed_data(), category)
    if choice.forge_checkout is not None:
        return load_forge(choice.forge_checkout)
    if choice.scenarios is not None:
        return load_scenarios(choice.scenarios)
    tasks: Sequence[Scenario] = suite(choice.suite, choice.families)
    return halves(tasks)[1] if choice.untuned else tasks


def _recorded_setups(choice: EvaluationChoice) -> list[RecordedSetup]:
    """Return the setups that play recorded replies or gold answers."""
    if registry.is_gold(choice.benchmark):
        return [registry.gold_of(choice.benchmark, choice.most)]
    return [] if choice.replies is None else load_replies(choice.replies, choice.most)


def simulated_setups(choice: EvaluationChoice) -> list[ModelSetup]:
    """Return the simulated models; with --grid, one for every cell of the grid."""
    names = choice.profiles or (DEFAULT_PROFILE,)
    setups = [simulated_setup(name, choice.pace) for name in names]
    if choice.has_grid:
        setups = [SimulatedSetup(name, cell, choice.pace) for name in names for cell in grid()]
    if choice.benchmark:
        benchmark, most = choice.benchmark, choice.most
        return [registry.simulated_model(benchmark, most, setup) for setup in setups]
    return [*setups]


async def find_running_setups(choice: EvaluationChoice) -> list[ModelSetup]:
    """Return the setups of running servers; raises InvalidConfiguration if one does not answer."""
    setups: list[ModelSetup] = []
    key = os.environ.get("TEMPER_BACKEND__API_KEY", "")  # the same variable as for `temper serve`
    for url in choice.backend_urls:
        for model in choice.backend_model or ("",):
            target = await find_target("--backend-url", url, model, key)
            name = target.url.partition("://")[2]
            if len(choice.backend_model) > 1:
                name += "_" + model.replace("/", "_")
            setups.append(ServedSetup(name, target))
    for name in choice.ollama:
        target = await find_target("--ollama", choice.ollama_url, name)
        setups.append(ServedSetup(name.replace("/", "_"), target))
    return setups


async def _start_setups(
    choice: EvaluationChoice, on_step: OnStep
) -> AsyncGenerator[ModelSetup, None]:
    """For each model file: start a server, yield it, and stop it before the next file."""
    for name, launch in _launches(choice).items():
        async with start_model(launch, on_step) as target:
            yield ServedSetup(name, target)


def _launches(choice: EvaluationChoice) -> dict[str, LaunchPlan]:
    """Return the launch plan of each model file, by the name of its setup."""
    window = registry.window_of(choice.benchmark)
    return {model.stem: plan_launch(model, model.stem, window=window) for model in choice.models}


def count_planned_runs(choice: EvaluationChoice) -> int:
    """Return the number of runs of an evaluation, including finished runs."""
    arms = len(arms_of(choice))
    if choice.is_recorded:
        setups = _recorded_setups(choice)
        return arms * sum(
            len(_with_chosen_names_and_tags(choice, setup.scenarios)) for setup in setups
        )
    served = len(choice.backend_urls) * max(1, len(choice.backend_model))
    count = served + len(choice.ollama) + len(_launches(choice))
    if choice.is_simulated:
        count = len(simulated_setups(choice))
    return arms * count * len(scenarios_of(choice)) * choice.seeds


def protocol_of(choice: EvaluationChoice) -> JsonObject:
    """Return the protocol of an evaluation.

    The `hash` covers the tasks, the simulated models, the agent loop and the judgments. The other
    members describe the software and the options.
    """
    return {
        "hash": "-".join(filter(None, (protocol_hash(), _hash_of_content(choice)))),
        "guardrails": guardrails_digest(),
        "temper": _version("temper-proxy"),
        "python": platform.python_version(),
        "arms": [arm.name for arm in arms_of(choice)],
        "beds": [setup.name for setup in simulated_setups(choice)] if choice.is_simulated else [],
        "pairs": len(scenarios_of(choice)) * choice.seeds,
        "benchmark": choice.benchmark,
        "choice": _as_json(choice),
    }


def _hash_of_content(choice: EvaluationChoice) -> str:
    """Return a hash of the user's scenarios, recorded replies or benchmark; "" for other suites."""
    if choice.benchmark:
        return registry.content_hash(choice.benchmark)
    folder = choice.scenarios or choice.replies
    if folder is None:
        return ""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(folder.glob("*.toml" if choice.scenarios else "*.jsonl*")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def check_folder(folder: Path, choice: EvaluationChoice) -> None:
    """Refuse a folder with runs of other options, because the results would be mixed."""
    if next(read_runs(folder), None) is None:
        return
    before, now = read_protocol(folder).get("choice"), _as_json(choice)
    known = before if isinstance(before, dict) else {}
    changed = [
        name
        for name in now
        if name not in _WITHOUT_EFFECT and known.get(name, now[name]) != now[name]
    ]
    if changed:
        problem = f"{folder} has runs with other options ({', '.join(changed)})"
        remedy = f"choose another folder, or continue with --resume {folder}"
        raise InvalidConfiguration("--output", f"{problem}: {remedy}")


def _as_json(choice: EvaluationChoice) -> JsonObject:
    """Convert the options to JSON, without `extra_arms`, which contain functions."""
    options = {field.name: getattr(choice, field.name) for field in fields(choice)}
    return {
        name: [str(item) for item in value] if isinstance(value, tuple) else _scalar(value)
        for name, value in options.items()
        if name not in _NOT_STORED
    }


def _scalar(value: object) -> JsonValue:
    return value if isinstance(value, str | int | float | None) else str(value)


def choice_of(resumed: Path | None, flags: Mapping[str, object]) -> EvaluationChoice:
    """Return the choice from the flags, or the stored choice of a resumed evaluation."""
    if resumed is None:
        return _read_choice(flags)
    before = read_protocol(resumed).get("choice")
    return _read_choice(before if isinstance(before, dict) else {})


def _read_choice(options: Mapping[str, object]) -> EvaluationChoice:
    known = {field.name for field in fields(EvaluationChoice)} - _NOT_STORED
    values = {name: value for name, value in options.items() if name in known}
    if isinstance(model := values.get("backend_model"), str):  # in a protocol of version 0.2
        values["backend_model"] = (model,) if model else ()
    try:
        choice = TypeAdapter(EvaluationChoice).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise InvalidConfiguration(f"--{first['loc'][0]}", str(first["msg"])) from error
    # stored with the options, so that a resumed evaluation uses the same Ollama
    return replace(choice, ollama_url=choice.ollama_url or _ollama_url())


def _ollama_url() -> str:
    return ollama_url(os.environ.get("OLLAMA_HOST", ""))


def missing_runs(protocol: JsonObject, runs: Sequence[RunRecord]) -> dict[str, int]:
    """Return the number of missing runs by setup and arm.

    If the protocol lists no setups, only setups that already have a run are counted.
    """
    pairs, arms, beds = protocol.get("pairs"), protocol.get("arms"), protocol.get("beds")
    planned = beds if isinstance(beds, list) and beds else sorted({run.bed for run in runs})
    made = Counter((run.bed, run.arm) for run in runs)
    counts = {
        f"{bed} {arm}": (pairs if isinstance(pairs, int) else 0) - made[str(bed), str(arm)]
        for bed in planned
        for arm in (arms if isinstance(arms, list) else [])
    }
    return {name: count for name, count in counts.items() if count > 0}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown (not installed)"


def _lacks_runs(records: Records, plan: EvaluationPlan, bed: ModelSetup) -> bool:
    arms, pairs = [arm.name for arm in plan.arms], [*plan.pairs()]
    return not all(
        records.has((bed.name, arm, scenario.name, seed))
        for arm in arms
        for scenario, seed in pairs
    )


async def _environment_of(bed: ModelSetup, launch: LaunchPlan | None) -> Environment:
    if not isinstance(bed, ServedSetup):
        return simulated_environment(bed.name)
    if launch is None or not isinstance(launch.model, Path):
        return await served_environment(bed.target)
    engine = embedded_engine() if launch.is_embedded else await find_engine(bed.target)
    return file_environment(launch.model, launch, engine)


async def evaluate(
    choice: EvaluationChoice,
    folder: Path,
    on_progress: Callable[[ArmProgress], None],
    *,
    on_step: OnStep = lambda _step: None,
    in_progress: RunsInProgress | None = None,
) -> Records:
    """Make all missing runs of a folder; returns its records, whose file is closed.

    `on_step` receives the steps that start a model. `in_progress` is updated with the current runs.
    """
    arms, scenarios = arms_of(choice), scenarios_of(choice)
    seeds = range(choice.seeds)
    current_runs = in_progress or RunsInProgress()

    def plan(*beds: ModelSetup) -> EvaluationPlan:
        loop = TurnLoop if choice.benchmark else AgentLoop
        keeps = choice.keeps_all
        return EvaluationPlan(beds, arms, scenarios, seeds, keeps, on_progress, current_runs, loop)

    async def make(plan: EvaluationPlan) -> None:
        for bed in plan.beds:
            if _lacks_runs(records, plan, bed):
                note_environment(
                    folder, bed.name, await _environment_of(bed, launches.get(bed.name))
                )
        if choice.benchmark:
            await registry.make_runs(choice.benchmark, plan, records)
        else:
            await make_runs(plan, records)

    known = simulated_setups(choice) if choice.is_simulated else await find_running_setups(choice)
    recorded, launches = _recorded_setups(choice), _launches(choice)
    records = Records(folder, protocol_of(choice))
    with contextlib.closing(records):
        for setup in recorded:
            chosen = _with_chosen_names_and_tags(choice, setup.scenarios)
            await make(replace(plan(setup), scenarios=chosen, seeds=range(1)))
        await make(plan(*known))
        async with aclosing(_start_setups(choice, on_step)) as beds:
            async for bed in beds:
                await make(plan(bed))
    return records
