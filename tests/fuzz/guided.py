"""The process in which Atheris mutates inputs; `guidance` starts it and reads its reports.

All guided targets share it, because its start is slow; the first byte of an input selects a target.
"""

import logging
import os
import sys
import time
from pathlib import Path

import atheris
import msgspec

from tests.fuzz.guidance import SLOWNESS, report_of

_FIXED = (
    "-timeout=120",
    "-rss_limit_mb=4096",
    "-max_len=4096",
    "-verbosity=0",
    "-print_final_stats=0",
)


def main(seconds: float, folder: Path, seed: int, names: list[str]) -> None:
    """Fuzz for `seconds`, and write the report; never returns."""
    logging.disable()
    with atheris.instrument_imports(include=["proxy"]):
        from tests.fuzz import catalogue
        from tests.fuzz.campaign import Judging
    chosen = [target for target in catalogue.targets()[0] if target.name in names]
    judging = [Judging(target, slowness=SLOWNESS) for target in chosen]
    until = time.monotonic() + seconds

    def judge(data: bytes) -> None:
        if data:
            judging[data[0] % len(judging)].judge(data[1:])
        if time.monotonic() > until:
            reports = {judge.target.name: report_of(judge.tally) for judge in judging}
            (folder / "report").write_bytes(msgspec.json.encode(reports))
            os._exit(0)

    atheris.Setup(
        [
            *(sys.argv[0], *_FIXED, f"-seed={seed}"),
            *(f"-artifact_prefix={folder}/", str(folder / "seeds")),
        ],
        judge,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
