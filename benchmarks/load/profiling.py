"""Where Temper spends its time in a scenario: cProfile around the whole server."""

import io
import pstats
import sys
import tempfile
from pathlib import Path

from benchmarks.load import subjects
from benchmarks.load.candidates import REPOSITORY, Launch, Situation, temper_arguments
from benchmarks.load.processes import free_port, pinned
from benchmarks.load.scenarios import SCENARIOS, Size


def profile(name: str, size: Size, file: Path, *, temper: Path = REPOSITORY) -> str:
    """Run a scenario once against a profiled Temper; return its most expensive functions.

    The profile itself is left in `file`, for any viewer of cProfile's format.
    """
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as place, pinned(0):
        folder = Path(place)
        with subjects.mock_backend(folder) as backend_url:
            situation = Situation(backend_url, free_port(), scenario.prose, folder, folder, temper)
            module = temper_arguments(situation)
            command = (sys.executable, "-m", "cProfile", "-o", str(file.resolve()), "-m", *module)
            launch = Launch(command, folder=temper)
            log = folder / "temper.log"
            with subjects.launched(launch, situation.port, log, core=1) as subject:
                scenario.measured(subject, size)
    told = io.StringIO()
    pstats.Stats(str(file), stream=told).sort_stats("tottime").print_stats(40)
    return told.getvalue()
