"""The table of results: one line for each fault, one column for each subject."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rows import ROWS, Row

_HEADING = """# Faults, and what happens to them

Every row is shown by tests that carry its id (`@pytest.mark.fault`). Those in `tests/faults` run
Temper on real sockets, before backends that are played byte by byte: llama-server's language and
Ollama's, cut anywhere, reset, closed by half, silent, endless. Those in `tests/acceptance` run it
with a real llama-server, and those in `tests/hosts` on hosts of their own. The table is written by

    pytest tests/faults tests/acceptance tests/unit/processes tests/unit/mcp tests/hosts -m fault \\
        --fault-table docs/faults.md

and a number is that of the tests that passed; a test that fails is named so.

The peer is forge-guardrails 0.10.0 before a server that it does not manage, with the tool for prose
that Temper gives a model as well (`--inject-respond-tool`), and else as it runs by default
(`python -m benchmarks peers` installs it). Its column is written by

    pytest tests/faults -m fault --fault-table docs/faults.md --fault-subject forge

It is asked only what can be seen from outside, in plain requests, and what it answers is read for
its substance: any 5xx or error event is a failure told, any 4xx a request refused, `[DONE]` behind
an error does not matter, and it may ask the backend as it likes, streaming or not. Before a silent
backend it has the same deadline as Temper.

An empty place is no verdict. The row is about something that forge's proxy does not set out to do
(keys of clients, models that load, compaction, workflows, Idempotency-Key), about the stream of a
backend, where forge asks for whole answers, or about what only tests of Temper can see or set."""
_LINE = re.compile(r"^\| (F\d\d) \|.*\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def summary(table: str) -> str:
    """Sum a written table up in a sentence."""
    rows = [(found[2], found[3]) for found in _LINE.finditer(table)]
    own = [_is_good(ours) for ours, _ in rows if ours]
    peers = [_is_good(theirs) for _, theirs in rows if theirs]
    return (
        f"{sum(own)} of {len(own)} end as they should with Temper; of the {len(peers)} that were "
        f"put to forge as well, {sum(peers)} do there."
    )


def _is_good(result: str) -> bool:
    return result.endswith("passed")


@dataclass
class Report:
    """What was seen of one subject."""

    subject: str
    _passed: Counter[str] = field(default_factory=Counter)
    _failed: Counter[str] = field(default_factory=Counter)

    def note(self, row: str, *, passed: bool) -> None:
        """Take note of one test of a row."""
        (self._passed if passed else self._failed)[row] += 1

    def write(self, path: Path) -> None:
        """Write the table, keeping the columns of other subjects that stand there already."""
        before = dict[str, tuple[str, str]]()
        if path.exists():
            text = path.read_text(encoding="utf-8")
            before = {found[1]: (found[2], found[3]) for found in _LINE.finditer(text)}
        lines = [_HEADING]
        section = ""
        for row in ROWS:
            if row.section != section:
                section = row.section
                lines += [f"\n## {section}\n", "| id | fault | outcome | temper | forge |"]
                lines.append("|---|---|---|---|---|")
            lines.append(self._line(row, before.get(row.id, ("", ""))))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _line(self, row: Row, before: tuple[str, str]) -> str:
        own, peers = before
        if self.subject == "temper":
            own = self._result(row.id)
        else:
            peers = self._result(row.id)
        return f"| {row.id} | {row.fault} | {row.outcome} | {own} | {peers} |"

    def _result(self, row: str) -> str:
        passed, failed = self._passed[row], self._failed[row]
        if not passed and not failed:
            return ""
        return f"{passed} passed" if not failed else f"**{failed} of {passed + failed} failed**"
