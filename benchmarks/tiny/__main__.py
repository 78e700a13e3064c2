"""`python -m benchmarks.tiny`: train, export and check the tiny model; needs the extra `train`.

python -m benchmarks.tiny out                  as the shipped one: minutes on one core
python -m benchmarks.tiny out --minutes 60     longer; --device cuda where there is one
python -m benchmarks.tiny out --install        put the result where `temper demo --tiny` finds it
python -m benchmarks.tiny out --ladder FILE    what each moment of its training can do, as JSON

What was begun in a folder is carried on. The same seed and tokens give the same model.
"""

import argparse
import asyncio
import json
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
from benchmarks.tiny.tokenizer import build_tokenizer, load_tokenizer, save_tokenizer
from benchmarks.tiny.train import LOG, Training, tokens_in, train
from temper_evals.tiny_model.shipped import FACTS_FILE, MODEL_FILE

SEED, TOKENS = 1, 5_000_000
RUNGS = (0.3, 0.45, 0.6, 0.8)
_PROMPTS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, export and check; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder / "tokenizer.json", chosen.seed)
    tokens = tokens_in(chosen.minutes) if chosen.minutes else chosen.tokens
    shape = Shape(tokenizer.get_vocab_size(), chosen.width, chosen.layers)
    training = Training(shape, tokens, chosen.seed, _device(chosen.device), RUNGS)
    weights = train(training, tokenizer, folder, _tell)
    checked = _checked(folder, training, tokenizer, weights)
    _write_facts(folder, training, weights, checked)
    if chosen.ladder:
        _climb(folder, training, tokenizer, chosen.ladder)
    is_good = checked["exact"].is_whole and checked["shipped"].is_near
    if chosen.install and is_good:
        shutil.copy(folder / MODEL_FILE.name, MODEL_FILE)
        shutil.copy(folder / FACTS_FILE.name, FACTS_FILE)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tiny",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shape = Shape(0)
    parser.add_argument("folder", type=Path, help="where checkpoints and results are, and go")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="default: %(default)s")
    parser.add_argument("--minutes", type=float, help="instead: minutes of one core, about")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--width", type=int, default=shape.width)
    parser.add_argument("--layers", type=int, default=shape.layers)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--install", action="store_true", help="ship the result")
    parser.add_argument("--ladder", type=Path, metavar="FILE", help="measure every kind")
    return parser


def _tokenizer(path: Path, seed: int) -> Tokenizer:
    if not path.exists():
        save_tokenizer(build_tokenizer(seed), path)
    return load_tokenizer(path)


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
        export(weights, training.shape, tokenizer, file, quantised=is_shipped)
        network = (rounded(weights) if is_shipped else weights), training.shape
        found[name] = asyncio.run(check.compare(network, tokenizer, file, _PROMPTS))
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
        "cpu_minutes": round(log[-1]["cpu_seconds"] / 60),
        "device": training.device,
        "torch": torch.__version__,
        "quantisation": "Q8_0",
        "shape": asdict(training.shape),
        "checked": {name: asdict(one) for name, one in checked.items()},
        "log": log[:: max(1, len(log) // 40)] + log[-1:],
    }
    text = json.dumps(facts, indent=1)
    (folder / FACTS_FILE.name).write_text(text + "\n", encoding="utf-8")


def _climb(folder: Path, training: Training, tokenizer: Tokenizer, into: Path) -> None:
    """Export every kind, measure it, and write the figures."""
    tokens: dict[str, int] = {}
    files: list[Path] = []
    for share in (*training.ladder, 1.0):
        kind = folder / f"kind-{round(100 * share)}.gguf"
        if share < 1:
            kept: Weights = torch.load(kind.with_suffix(".pt"), weights_only=True)
            export(kept, training.shape, tokenizer, kind)
        else:
            shutil.copy(folder / MODEL_FILE.name, kind)
        tokens[kind.stem] = round(share * training.tokens)
        files.append(kind)
    results = asyncio.run(ladder.climb(files, folder / "ladder", _tell))
    ladder.write_figures(results, tokens, into)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
