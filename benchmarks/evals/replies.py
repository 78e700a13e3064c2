"""Recorded replies: Temper compared with other proxies, and the conversion of BFCL results."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.evals.proxies import peer_arms
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.arms import TEMPER
from temper_evals.bfcl import load_bfcl
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.reply_bed import QUESTIONS, count_replies, load_replies
from temper_evals.report.terminal import show_replies

_END = "_result.json"


def measure(replies: Path, output: Path, most: int | None, peers: Path) -> None:
    """Send the replies to Temper and to the installed proxies, and print the counts."""
    others = {name: arm for name, arm in peer_arms(peers).items() if name != "litellm"}
    arms = (TEMPER, *others)
    choice = EvaluationChoice(replies=replies, most=most, arms=arms, extra_arms=others)
    records = asyncio.run(evaluate(choice, output, lambda _progress: None))
    counts = count_replies(records.runs, load_replies(replies, most))
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    show_replies(console, counts)


def convert(results: Path, data: Path, output: Path) -> dict[str, int]:
    """Write BFCL results as a folder of recorded replies; returns the number of replies by model.

    `results` has a folder for each model, and `data` has the questions and possible answers of the
    same BFCL version. Results of handlers that let the engine parse calls are skipped, because such
    results are not raw texts.
    """
    output.mkdir(parents=True, exist_ok=True)
    questions: dict[str, list[JsonObject]] = {}
    counts: dict[str, int] = {}
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        replies: list[JsonObject] = []
        for path in sorted(folder.rglob(f"BFCL_v*{_END}")):
            category = path.name.removesuffix(_END).split("_", 2)[2]
            if category not in questions:
                questions[category] = [*_questions(data, category)]
            replies += _replies(path, category)
        if replies:
            counts[folder.name] = len(replies)
            (output / f"{folder.name}.jsonl").write_bytes(json.dump_lines(replies))
    listed = [question for in_category in questions.values() for question in in_category]
    (output / f"{QUESTIONS}.jsonl").write_bytes(json.dump_lines(listed))
    return counts


def _questions(data: Path, category: str) -> Iterator[JsonObject]:
    for scenario in load_bfcl(data, category):
        request = scenario.request(0)
        yield {
            "category": category,
            "id": scenario.name.removeprefix("bfcl-"),
            "messages": request["messages"],
            "tools": request["tools"],
            "truth": [*scenario.truth],
        }


def _replies(path: Path, category: str) -> Iterator[JsonObject]:
    for line in path.read_text(encoding="utf-8").splitlines():
        result = json.parse(line) if line.strip() else None
        if isinstance(result, dict) and isinstance(text := result.get("result"), str):
            reply: JsonObject = {"category": category, "id": result.get("id"), "text": text}
            yield {**reply, "dotted": False}
