"""`python -m benchmarks.dashboard_memory`: what 10,000 requests leave behind before an open page.

A headless Chromium (the extra `browser`; TEMPER_BROWSER may name another one) has the dashboard
open meanwhile. At the end it gets 200 neighbours at once.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Page, async_playwright

from benchmarks.dashboard import ask_each, serve
from benchmarks.load.subjects import Subject, mock_backend

_WARM = 500  # requests
_FEED = b"GET /ui/api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_FEEDS = 200
_MOST_MB = 64.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print it; 1 if the memory of Temper grew by more than 64 MB."""
    parser = argparse.ArgumentParser("python -m benchmarks.dashboard_memory", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    requests = parser.parse_args(arguments).requests
    with (
        tempfile.TemporaryDirectory() as name,
        mock_backend(Path(name)) as url,
        serve(url, Path(name) / "temper.log", is_on=True) as subject,
    ):
        return asyncio.run(_watch(subject, requests))


async def _watch(subject: Subject, requests: int) -> int:
    program = os.environ.get("TEMPER_BROWSER") or shutil.which("chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    idle = _peak(subject)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=flags)
        page = await browser.new_page()
        await page.goto(f"{subject.target.url}/ui")
        await page.locator(".link.live").wait_for()
        await ask_each(subject, _WARM)
        sys.stdout.write(f"idle {idle:.1f} MB\n{await _line(subject, page, _WARM)}")
        for part in range(1, 6):
            await ask_each(subject, requests // 5)
            sys.stdout.write(await _line(subject, page, _WARM + part * requests // 5))
        statuses = Counter(await asyncio.gather(*(_feed(subject) for _ in range(_FEEDS))))
        sys.stdout.write(f"{_FEEDS} feeds at once beside it: {dict(sorted(statuses.items()))}\n")
        await browser.close()
    grown = _peak(subject) - idle
    sys.stdout.write(f"peak {grown:.1f} MB above idle\n")
    return int(grown > _MOST_MB)


def _peak(subject: Subject) -> float:
    used = subject.usage()
    if used is None:
        raise SystemExit("the memory of a process cannot be read here")
    return used.peak_mb


async def _line(subject: Subject, page: Page, requests: int) -> str:
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    heap = (await session.send("Runtime.getHeapUsage"))["usedSize"] / 2**20
    return f"{requests:,} requests: peak {_peak(subject):.1f} MB, heap of the page {heap:.1f} MB\n"


async def _feed(subject: Subject) -> int:
    """Return the status of a feed that stays open until all have one."""
    host, _, port = subject.target.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_FEED)
    status = int((await reader.readline()).split()[1])
    await asyncio.sleep(1)
    writer.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
