"""The memory plan for a model, compared with the allocation of a real llama-server."""

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest

from proxy.hardware.fit import CacheType, Caching, need
from proxy.processes.model_file import read_model_file
from tests.fakes import shapes

MIB = 1 << 20

# The source of a program that loads a model with verbose logs.
LOADER = """
import sys, xllamacpp
model, window, slots, cache = sys.argv[1:]
parameters = xllamacpp.CommonParams()
parameters.model.path = model
parameters.n_ctx, parameters.n_parallel = int(window), int(slots)
kind = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + cache)
parameters.cache_type_k = parameters.cache_type_v = kind
parameters.port, parameters.verbosity = 0, 5
xllamacpp.Server(parameters)
"""
PLANNED = "fitting params to free memory took"
LOADED = "initializing, n_slots"


def log_of_loading(model: Path, window: int, caching: Caching) -> list[str]:
    """Return the server's log lines about the memory that it allocated."""
    words = (str(model), str(window * caching.slots), str(caching.slots), caching.keys.name)
    command = [sys.executable, "-c", LOADER, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines = list(takewhile(lambda line: LOADED not in line, server.stderr))
        # with verbose logs, the server sometimes hangs after it is ready
        server.kill()
    (planned,) = (index for index, line in enumerate(lines) if PLANNED in line)
    return lines[planned:]


def total(lines: list[str], pattern: str) -> float:
    return sum(float(match[1]) for line in lines if (match := re.search(pattern, line)))


@pytest.mark.parametrize(
    ("model", "window", "slots", "cache"),
    [
        (shapes.plain, 4096, 1, CacheType.F16),
        (shapes.plain, 8192, 3, CacheType.BF16),
        (shapes.plain, 8192, 2, CacheType.Q8_0),
        (shapes.plain, 8192, 2, CacheType.Q5_1),
        (shapes.plain, 8192, 2, CacheType.Q4_0),
        (shapes.plain, 8192, 1, CacheType.IQ4_NL),
        (shapes.uneven, 8192, 2, CacheType.F16),
        (shapes.sliding, 8192, 2, CacheType.F16),
        (shapes.sliding, 1024, 2, CacheType.Q8_0),
        (shapes.latent, 8192, 2, CacheType.F16),
        (shapes.recurrent, 8192, 4, CacheType.F16),
        (shapes.hybrid, 8192, 4, CacheType.F16),
        (shapes.convolved, 8192, 4, CacheType.F16),
        (shapes.linear, 8192, 4, CacheType.F16),
    ],
)
def test_allocated_memory_matches_the_plan(
    model: Callable[[Path], Path], window: int, slots: int, cache: CacheType, tmp_path: Path
) -> None:
    path = model(tmp_path)
    shape, caching = read_model_file(path).shape, Caching(slots, cache, cache)
    assert shape is not None
    needed = need(shape, window, caching)
    lines = log_of_loading(path, window, caching)
    # sizes are logged in hundredths of a MiB, once for each kind of cache
    kept = total(lines, r"llama_(?:kv_cache|memory_recurrent): size = +([\d.]+) MiB")
    assert needed.cache / MIB == pytest.approx(kept, abs=0.01)
    weights = total(lines, r"model buffer size = +([\d.]+) MiB")
    assert 0 < weights <= needed.weights / MIB
    working = total(lines, r"compute buffer size = +([\d.]+) MiB")
    assert 0.8 * working < needed.working / MIB < 2 * working
