"""Compares how HAProxy and Temper parse the same bytes: see `judge`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.oracle.attacks import attack
from tests.oracle.chain import Chain, Reading, Request

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_NUMBER = re.compile(rb"x-number: (\d+)\r\n")
# The statuses for an unsupported transfer coding (RFC 9112, 6.1) and an unsupported HTTP version.
_GOOD_ERRORS = frozenset({b"501", b"505"})


@dataclass
class Oracle:
    """Sends inputs along all routes, and counts the results."""

    chain: Chain
    seed: int
    inputs: int = 0
    forwarded: int = 0
    direct: int = 0
    findings: list[str] = field(default_factory=list)
    _marks: set[str] = field(default_factory=set)

    async def run(self, count: int, first: int = 0) -> None:
        """Judge a number of inputs; stop at the first one with a finding."""
        for number in range(first, first + count):
            if self.findings:
                return
            await self.judge(attack(self.seed, number), number)

    async def judge(self, data: bytes, number: int = 0) -> None:
        """Send bytes along all routes, and compare the readings."""
        self.inputs += 1
        route = "lenient" if number % 4 == 3 else "haproxy"
        through = await self._read(route, data, number)
        direct = await self._read("direct", data, number)
        self.forwarded += len(through)
        self.direct += len(direct)
        problems = [*self._of_marks(through), *_of_comparison(through, direct)]
        self.findings += [
            f"input {number} ({route}): {problem}\n    {data!r}" for problem in problems
        ]

    async def _read(self, route: str, data: bytes, number: int) -> list[Reading]:
        recorder = self.chain.recorder
        recorder.readings.clear()
        try:
            answer = await self.chain.send(route, data)
        except TimeoutError:
            self.findings.append(f"input {number} ({route}): no end\n    {data!r}")
            return []
        self.findings += [
            f"input {number} ({route}): {problem}\n    {data!r}" for problem in _of_answer(answer)
        ]
        return list(recorder.readings)

    def _of_marks(self, readings: Sequence[Reading]) -> Iterator[str]:
        """Yield the differences between a request as HAProxy forwarded it and as Temper read it."""
        for reading in readings:
            marked = reading.marked
            if marked is None:
                yield f"{reading.request} was not forwarded as a request (mark {reading.mark!r})"
            elif reading.mark in self._marks:
                yield f"{reading.request} reached the application twice"
            elif _differ(marked, reading.request):
                yield f"{reading.request} was forwarded as {marked}"
            self._marks.add(reading.mark)


def _differ(directly: Request, other: Request) -> bool:
    sizes = {directly.size, other.size} - {None}
    hosts = {request.host.removesuffix(b":80") for request in (directly, other)}  # the default port
    return max(len(sizes), len(hosts)) > 1 or directly[:2] != other[:2]


def _of_comparison(through: Sequence[Reading], direct: Sequence[Reading]) -> Iterator[str]:
    """Yield the inputs that Temper and HAProxy parse into different requests.

    Either program may reject a request that the other one accepts. Only requests that both programs
    have read are compared.
    """
    for ours, theirs in zip(direct, through, strict=False):
        marked = theirs.marked
        if marked is not None and _differ(marked, ours.request):
            yield f"HAProxy reads {marked}, and Temper reads {ours.request}"


def _of_answer(answer: bytes) -> Iterator[str]:
    """Yield server errors, and responses that are not in the order of their requests."""
    bad = {status for status in _STATUS.findall(answer) if status >= b"500"} - _GOOD_ERRORS
    if bad:
        yield f"status {bad}"
    numbers = [int(number) for number in _NUMBER.findall(answer)]
    if numbers != sorted(set(numbers)):
        yield f"responses are mixed up: {numbers}"
