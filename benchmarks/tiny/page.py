"""Writes docs/tiny.md, of the shipped model's facts and of records of `temper eval --tiny`."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.tiny.ladder import write_figures
from proxy.conversation.json import JsonObject
from proxy.serving.tuned import guardrails_digest
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.records import read_protocol, read_runs
from temper_evals.report.markdown import markdown_table
from temper_evals.report.table import markdown
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress
from temper_evals.tiny_model import shipped

_NAMES = ("ladder", "untalking", "larger")
LADDER, UNTALKING, LARGER = (Path(__file__).with_name(f"{name}.json") for name in _NAMES)
_HEAD = """# The tiny model

<!-- written by `python -m benchmarks tiny`; a change by hand is lost -->

This project trained a language model on generated sentences, for tests and demonstrations with
real errors. `temper demo --tiny` shows it, `temper eval --tiny` measures with it. It knows two
dozen tools with values of a few tokens, and nothing else. It says nothing about larger models.

"""
_TRAINING = """
`pip install '.[train]' && python -m benchmarks.tiny out --install` trains it again: the tokenizer,
copying, dialogues with one learning-rate decay, the export, and a check that llama-server and
PyTorch agree. `--tokens`, `--width` and `--layers` change the model. A run that was interrupted
continues in the same folder. Some dialogues offer a tool for talking under one of four names,
`respond` among them; no text of Temper's own prompts occurs in training.
"""
_READING = """
Cities, people and invented words are held out of training. `composed` tools combine a verb and a
noun in pairs that training never showed; `unseen` tools are new in every part. `tiny` is the model
as it is. `tiny-mute` runs with a chat template without calls: llama-server learns no call syntax
from it, and the model does not see its own earlier calls. All runs are greedy, so arms differ only
by what is between the loop and the model.
"""
_UNTALKING_COLUMNS = ("bed", "arm", "right", "helped", "harmed")
_UNTALKING_HEAD = """
## Taught without a tool for talking

`untalking` is the shipped model trained once more, by `python -m benchmarks.tiny out --size
untalking`: the same but for the dialogues that offer a tool for talking, of which there are none.
`talking` is the shipped one. `temper eval --tiny --model untalking.gguf --model talking.gguf --arms
direct,temper-respond --output OUT`, then `python -m benchmarks tiny OUT --untalking`.

"""
_LARGER_HEAD = """
## A larger one, with unseen tools

Measured on {date} with `python -m benchmarks tiny OUT --model larger.gguf --count {count}`,
guardrails and nudges `{guardrails}`, on a llama-server of the extra `embedded`; {count} tasks of
each of ten families, with tools of domains that training showed and of domains that it did not. The
model is not shipped. `python -m benchmarks.tiny out --size larger --clock 6.6 --workers 2` trains
one like it on one GPU; no two are the same. Its tools are invented: names, types, lists of words,
arrays, objects, several on offer, errors that pass and errors that do not. No tool for talking and
no sentence of Temper's occurs in its training. That it answers a polite request with a mere promise
was put into its training on purpose, and so were questions whether anything is left to do, in other
words.

"""
_LARGER_TOLD = ("date", "count", "guardrails")
_LARGER_TAIL = """
What this shows: rules of Temper at work on the replies of a real network, greedy, through a real
llama-server, with errors that nobody scripted. What it does not show: how often larger models err
so. A model of this size knows no language but that of its tasks, and reads no question as a large
model does. Rates of promising, giving up and acting again are those of its training data and of
its mistakes; they are no estimate for a model of billions of parameters. Its loss rose again until
the learning rate fell, so the rate is too high for its width, and with unseen tools it is weak.
"""
COUNTED = {
    "promised": "promises that ended a run of `direct`",
    "called": "of these: behind `temper` the model called",
    "kept": "of these: the run was right in the end",
    "asked_behind_right": "right ends behind a call, all asked about by `temper-always`",
    "acted_behind_right": "of these: the model called once more",
}


async def measure(folder: Path, size: str, tell: Callable[[str], None]) -> None:
    """Make the runs of the shipped model that a folder lacks."""

    def show(progress: ArmProgress) -> None:
        if progress.done == progress.of:
            tell(f"{progress.bed} {progress.arm}: {progress.right} of {progress.of}")

    await evaluate(EvaluationChoice(tiny=True, suite=size), folder, show)


def page(folder: Path, size: str) -> str:
    """Return the page of the records in a folder."""
    runs = [*read_runs(folder)]
    results = results_of(runs)
    facts, protocol = shipped.facts(), read_protocol(folder)
    command = f"python -m benchmarks tiny {folder.name} --size {size} --page docs/tiny.md"
    made = (
        f"\nProtocol `{protocol['hash']}`, guardrails and nudges `{protocol.get('guardrails')}`, "
        f"{len(runs)} runs: `{command}`\n\n"
    )
    return "".join(
        (
            _HEAD,
            _facts(facts),
            _TRAINING,
            "\n## With and without Temper\n",
            made,
            markdown(results),
            _READING,
            _promises(results),
            _families(results),
            _ladder(),
            others(),
        )
    )


def others() -> str:
    """Return the sections of the models that are not shipped."""
    return _untalking() + larger()


def _untalking() -> str:
    """Show the small model beside one that nobody ever offered a tool for talking."""
    if not UNTALKING.exists():
        return ""
    rows = [
        (one["bed"], one["arm"], f"{one['right']}/{one['runs']}", one["helped"], one["harmed"])
        for one in json.loads(UNTALKING.read_text(encoding="utf-8"))
    ]
    return _UNTALKING_HEAD + markdown_table(_UNTALKING_COLUMNS, rows)


def keep_untalking(folder: Path) -> None:
    """Keep what records of `temper eval --tiny` came to, one line for each bed and arm."""
    write_figures(results_of(read_runs(folder)), {}, UNTALKING)


def larger() -> str:
    """Return the section of the larger model, of what was kept of its training and its runs."""
    if not LARGER.exists():
        return ""
    figures = json.loads(LARGER.read_text(encoding="utf-8"))
    arms = figures["arms"]
    rows = [
        (one["arm"], str(one["runs"]), f"{100 * one['right'] / one['runs']:.1f}", *_effect(one))
        for one in arms
    ]
    headings = ("arm", "runs", "success", "helped", "harmed", "damage", "gen./request")
    families = [
        (name, *("/".join(map(str, one["families"].get(name, ()))) for one in arms))
        for name in arms[0]["families"]
    ]
    found = [(said, str(figures["rates"][name])) for name, said in COUNTED.items()]
    tuned = "".join(f"- {sentence}\n" for sentence in figures["tuning"])
    return "".join(
        (
            _LARGER_HEAD.format(**{name: figures[name] for name in _LARGER_TOLD}),
            markdown_table(("what", ""), _larger_facts(figures["training"])),
            "\n" + markdown_table(headings, rows),
            "\n" + markdown_table(("what was counted", "runs"), found),
            f"\nWhat the rule of `temper tune` decides of these runs, by `temper`:\n\n{tuned}\n",
            markdown_table(("family", *(f"`{one['arm']}`" for one in arms)), families),
            _LARGER_TAIL,
        )
    )


def _larger_facts(trained: JsonObject) -> list[tuple[str, str]]:
    shape, checked, log = trained["shape"], trained["checked"], trained["log"]
    assert isinstance(shape, dict)  # noqa: S101 - `python -m benchmarks.tiny` wrote it
    assert isinstance(checked, dict)  # noqa: S101 - the same
    assert isinstance(log, list)  # noqa: S101 - the same
    last = log[-1]
    assert isinstance(last, dict)  # noqa: S101 - the same
    exact = [
        f"{100 * float(str(last[name])):.1f} % with {name} tools" for name in ("seen", "unseen")
    ]
    return [
        ("size", f"{trained['parameters']:,} parameters, Q8_0"),
        ("network", f"llama: width {shape['width']}, {shape['layers']} layers"),
        ("tokenizer", f"BPE of {shape['vocabulary']} tokens"),
        ("training", f"{last['tokens']:,} tokens, {last['seconds']} seconds, {trained['device']}"),
        ("calls that are exact, given all before them", ", ".join(exact)),
        *(_agreement(name, one) for name, one in checked.items() if isinstance(one, dict)),
    ]


def _effect(one: JsonObject) -> tuple[str, ...]:
    helped, harmed = ("", "") if one["arm"] == "direct" else (one["helped"], one["harmed"])
    return str(helped), str(harmed), str(one["damage"]), f"{one['generations']:.2f}"


def keep_larger(model: Path, figures: JsonObject, count: int) -> None:
    """Keep what a larger model came to, with the facts of its training that lie beside it."""
    told: JsonObject = {
        "date": datetime.now(UTC).date().isoformat(),
        "count": count,
        "guardrails": guardrails_digest(),
        "training": json.loads(model.with_suffix(".json").read_text(encoding="utf-8")),
        **figures,
    }
    LARGER.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def with_others(text: str) -> str:
    """Return a page whose sections of other models are the present ones."""
    for head in (_UNTALKING_HEAD, _LARGER_HEAD):
        text = text.partition(head.partition("\n\n")[0])[0]
    return text + others()


def _facts(facts: JsonObject) -> str:
    shape, checked = facts["shape"], facts["checked"]
    assert isinstance(shape, dict)  # noqa: S101 - `python -m benchmarks.tiny` wrote it
    assert isinstance(checked, dict)  # noqa: S101 - the same
    size = shipped.MODEL_FILE.stat().st_size / 1e6
    cells = [
        ("licence", str(facts["licence"])),
        ("size", f"{facts['parameters']:,} parameters, {size:.1f} MB as {facts['quantisation']}"),
        ("network", f"llama: width {shape['width']}, {shape['layers']} layers"),
        ("tokenizer", f"BPE of {shape['vocabulary']} tokens"),
        (
            "training",
            f"{facts['tokens']:,} tokens, {facts['cpu_minutes']} minutes of one core, seed "
            f"{facts['seed']}, torch {facts['torch']}",
        ),
        *(_agreement(name, one) for name, one in checked.items() if isinstance(one, dict)),
    ]
    return markdown_table(("what", ""), cells)


def _agreement(name: str, found: JsonObject) -> tuple[str, str]:
    kind = {"exact": "without rounding", "shipped": "as shipped"}[name]
    return (
        f"llama-server against PyTorch, {kind}",
        f"of {found['prompts']} prompts {found['texts']} have the same text, {found['tokens']} the "
        f"same tokens, {found['replies']} the same 20 greedy tokens; log-probabilities differ by "
        f"{found['worst']:.4f} at most",
    )


def _promises(results: Sequence[ArmResult]) -> str:
    """Hold the results to the thresholds that were fixed before there was a model."""
    arms = {(one.bed, one.arm): one for one in results}
    accept, respond = (arms["tiny", f"temper-{name}"].against for name in ("accept", "respond"))
    native = _right_calls(arms["tiny", "direct"])
    found = _right_calls(arms["tiny-mute", "temper-accept"])
    assert accept is not None  # noqa: S101 - direct has run
    assert respond is not None  # noqa: S101 - the same
    one_call = "98 % of the tasks with one call that `tiny` gets right"
    native_arm, asked_arm = "`tiny`, `temper-accept`", "`tiny`, `temper-respond`"
    balance, of_mute = f"{respond.helped}, {respond.harmed}", f"{found} of {native}"
    kept = [
        (native_arm, "helps and harms nobody", f"{accept.helped}, {accept.harmed}"),
        (asked_arm, "helps 3 times as often as it harms", balance),
        (asked_arm, "harms at most 5 % of what was right", f"{100 * respond.harm:.1f} %"),
        ("`tiny-mute`, `temper-accept`", one_call, of_mute),
    ]
    met = (
        accept.helped == accept.harmed == 0,
        respond.helped >= 3 * respond.harmed,
        respond.harm <= 0.05,
        found >= 0.98 * native,
    )
    cells = [(*row, "met" if good else "missed") for row, good in zip(kept, met, strict=True)]
    table = markdown_table(("arm", "threshold", "measured", ""), cells)
    return f"\n## What was promised, and what came\n\n{table}"


def _right_calls(one: ArmResult) -> int:
    return sum(one.families.get(name, (0, 0))[0] for name in ("single", "choose", "composed"))


def _families(results: Sequence[ArmResult]) -> str:
    names = list(dict.fromkeys(name for one in results for name in one.families))
    cells = [
        (one.bed, one.arm, *(f"{one.families[name][0]}/{one.families[name][1]}" for name in names))
        for one in results
    ]
    return f"\n## By family\n\n{markdown_table(('bed', 'arm', *names), cells)}"


def _ladder() -> str:
    """Show what the model could do at moments of its training, with each arm."""
    if not LADDER.exists():
        return ""
    figures = json.loads(LADDER.read_text(encoding="utf-8"))
    arms = list(dict.fromkeys(one["arm"] for one in figures))
    right = {(one["bed"], one["arm"]): f"{one['right']}/{one['runs']}" for one in figures}
    tokens = {one["bed"]: one["tokens"] for one in figures}
    cells = [
        (bed, f"{count:,}", *(right.get((bed, arm), "") for arm in arms))
        for bed, count in tokens.items()
    ]
    told = "Right runs of the quick tasks, kept in `benchmarks/tiny/ladder.json`."
    table = markdown_table(("moment", "tokens", *arms), cells)
    return f"\n## While it was trained\n\n{told}\n\n{table}"
