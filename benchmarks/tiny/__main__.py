"""`python -m benchmarks.tiny`: train, export and check the tiny model; needs the extra `train`.

python -m benchmarks.tiny out                  as the shipped one: minutes on one core
python -m benchmarks.tiny out --minutes 60     longer; --device cuda where there is one
python -m benchmarks.tiny out --install        put the result where `temper demo --tiny` finds it
python -m benchmarks.tiny out --ladder FILE    what each moment of its training can do, as JSON

python -m benchmarks.tiny out --size larger --clock 8 --workers 2      27 million parameters, which
                                               know invented tools; for a GPU, and not shipped

What was begun in a folder is carried on. The same seed and tokens give the same model.
"""

import argparse
import asyncio
import json
import math
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer

from benchmarks.tiny import check, ladder
from benchmarks.tiny.export import LICENCE, export, rounded
from benchmarks.tiny.model import Shape, Weights, parameter_count
from benchmarks.tiny.sizes import SHIPPED, SIZES, Size
from benchmarks.tiny.tokenizer import build_tokenizer, load_tokenizer, save_tokenizer
from benchmarks.tiny.train import LOG, Training, tokens_in, train
from temper_evals.tiny_model.shipped import FACTS_FILE, MODEL_FILE

SEED = 1
RUNGS = (0.3, 0.45, 0.6, 0.8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, export and check; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    size = SIZES[chosen.size]
    tokenizer = _tokenizer(folder / "tokenizer.json", chosen.seed, size)
    training = _training(chosen, size, tokenizer)

    def keep(weights: Weights) -> None:
        if training.is_timed:  # whoever is cut off has a model
            _export_whole((weights, training.shape), tokenizer, folder / MODEL_FILE.name, size)

    weights = train(training, tokenizer, folder, _tell, keep=keep)
    if chosen.unchecked:
        _write_facts(folder, training, weights, {})
        return 0
    checked = _checked(folder, training, tokenizer, weights)
    _write_facts(folder, training, weights, checked)
    if chosen.ladder:
        _climb(folder, training, tokenizer, chosen.ladder)
    is_good = checked["exact"].is_whole and checked["shipped"].is_near
    if chosen.install and is_good and size is SHIPPED:
        shutil.copy(folder / MODEL_FILE.name, MODEL_FILE)
        shutil.copy(folder / FACTS_FILE.name, FACTS_FILE)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tiny",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where checkpoints and results are, and go")
    parser.add_argument("--size", choices=[*SIZES], default=SHIPPED.name)
    parser.add_argument("--tokens", type=int, help="default: as many as the size needs")
    parser.add_argument("--minutes", type=float, help="instead: minutes of one core, about")
    parser.add_argument("--clock", type=float, help="end after so many minutes by the clock")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--width", type=int, help="default: of the size")
    parser.add_argument("--layers", type=int, help="default: of the size")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw dialogues")
    parser.add_argument("--unchecked", action="store_true", help="do without llama-server")
    parser.add_argument("--install", action="store_true", help="ship the result")
    parser.add_argument("--ladder", type=Path, metavar="FILE", help="measure every rung")
    return parser


def _training(chosen: argparse.Namespace, size: Size, tokenizer: Tokenizer) -> Training:
    shape = Shape(
        tokenizer.get_vocab_size(),
        chosen.width or size.width,
        chosen.layers or size.layers,
        head=size.head,
    )
    tokens = tokens_in(chosen.minutes) if chosen.minutes else chosen.tokens or size.tokens
    return Training(
        shape,
        tokens,
        chosen.seed,
        _device(chosen.device),
        RUNGS if size is SHIPPED else (),
        size,
        chosen.clock or math.inf,
        chosen.workers,
    )


def _tokenizer(path: Path, seed: int, size: Size) -> Tokenizer:
    if not path.exists():
        save_tokenizer(build_tokenizer(seed, size), path)
    return load_tokenizer(path)


def _export_whole(
    network: tuple[Weights, Shape], tokenizer: Tokenizer, path: Path, size: Size
) -> None:
    """Write the file, whole or not at all."""
    export(network, tokenizer, path.with_suffix(".new"), size)
    path.with_suffix(".new").replace(path)


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted


def _checked(
    folder: Path, training: Training, tokenizer: Tokenizer, weights: Weights
) -> dict[str, check.Agreement]:
    """Export as it is and as it is shipped, and hold both files to what the network says."""
    found: dict[str, check.Agreement] = {}
    files = {"exact": folder / "exact.gguf", "shipped": folder / MODEL_FILE.name}
    for name, file in files.items():
        is_shipped = name == "shipped"
        export((weights, training.shape), tokenizer, file, training.size, quantised=is_shipped)
        network = (rounded(weights) if is_shipped else weights), training.shape
        samples = training.size.samples(random.Random("checked"), training.size.checked)  # noqa: S311 - made-up tasks
        found[name] = asyncio.run(check.compare(network, tokenizer, file, samples))
        _tell(f"PyTorch and llama-server, {name}: {found[name]}")
    return found


def _write_facts(
    folder: Path, training: Training, weights: Weights, checked: dict[str, check.Agreement]
) -> None:
    """Write beside the model how it was made."""
    log = [json.loads(line) for line in (folder / LOG).read_text("utf-8").splitlines()]
    facts = {
        "licence": LICENCE,
        "seed": training.seed,
        "parameters": parameter_count(weights),
        "tokens": log[-1]["tokens"],
        **_minutes(log[-1]),
        "device": torch.cuda.get_device_name() if training.device == "cuda" else training.device,
        "torch": torch.__version__,
        "quantisation": "Q8_0",
        "shape": asdict(training.shape),
        "checked": {name: asdict(one) for name, one in checked.items()},
        "log": log[:: max(1, len(log) // 40)] + log[-1:],
    }
    text = json.dumps(facts, indent=1)
    (folder / FACTS_FILE.name).write_text(text + "\n", encoding="utf-8")


def _minutes(last: dict[str, float]) -> dict[str, int]:
    name = "seconds" if "seconds" in last else "cpu_seconds"
    return {name.replace("seconds", "minutes"): round(last[name] / 60)}


def _climb(folder: Path, training: Training, tokenizer: Tokenizer, into: Path) -> None:
    """Export every rung, measure it, and write the figures."""
    tokens: dict[str, int] = {}
    files: list[Path] = []
    for share in (*training.ladder, 1.0):
        rung = folder / f"rung-{round(100 * share)}.gguf"
        if share < 1:
            kept: Weights = torch.load(rung.with_suffix(".pt"), weights_only=True)
            export((kept, training.shape), tokenizer, rung, training.size)
        else:
            shutil.copy(folder / MODEL_FILE.name, rung)
        tokens[rung.stem] = round(share * training.tokens)
        files.append(rung)
    results = asyncio.run(ladder.climb(files, folder / "ladder", _tell))
    ladder.write_figures(results, tokens, into)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
