"""The table of results, with a line for each fault and a column for each subject."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rows import ROWS, Row

_HEADING = """# Faults and their outcomes

The tests that are marked with the id of a row (`@pytest.mark.fault`) verify it. The tests in
`tests/faults` run Temper on real sockets, in front of backends that are simulated byte by byte: the
protocols of llama-server and Ollama, truncated at any byte, reset, half-closed, silent, endless.
The tests in `tests/acceptance` use a real llama-server, the tests in `tests/hosts` simulated hosts.
This command writes the table:

    pytest tests/faults tests/acceptance tests/hosts tests/unit \\
        -m fault --fault-table docs/faults.md

A number is the count of tests that passed; failing tests are shown as such.

For comparison, some rows are also run with forge-guardrails 0.10.0, in front of a server that it
does not manage. It runs with the `respond` tool (`--inject-respond-tool`) and otherwise with its
defaults; `python -m benchmarks peers` installs it. This command writes its column:

    pytest tests/faults -m fault --fault-table docs/faults.md --fault-subject forge

The tests send forge plain HTTP requests only, and judge its responses leniently: any 5xx or error
event counts as a reported failure, any 4xx as a rejected request. `[DONE]` after an error is
accepted. Its requests to the backend may be streamed or not. With a silent backend it has the same
deadline as Temper.

A row has no result for forge if it concerns a feature that forge's proxy does not have (client
keys, loading models, compaction, order rules, Idempotency-Key), the stream of a backend (forge
requests complete responses), or a state that only tests of Temper can observe or set."""
_LINE = re.compile(r"^\| (F\d+) \|.*\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def summary(table: str) -> str:
    """Return a sentence with the counts of a table."""
    rows = [(match[2], match[3]) for match in _LINE.finditer(table)]
    outcomes = [_is_good(ours) for ours, _ in rows if ours]
    peers = [_is_good(theirs) for _, theirs in rows if theirs]
    return (
        f"Temper passes {sum(outcomes)} of {len(outcomes)} rows; of the {len(peers)} rows that "
        f"were also run with forge, forge passes {sum(peers)}."
    )


def _is_good(result: str) -> bool:
    return result.endswith("passed")


@dataclass
class Report:
    """The results of one subject."""

    subject: str
    _passed: Counter[str] = field(default_factory=Counter)
    _failed: Counter[str] = field(default_factory=Counter)

    def note(self, row: str, *, passed: bool) -> None:
        """Record the result of a test of a row."""
        (self._passed if passed else self._failed)[row] += 1

    def write(self, path: Path) -> None:
        """Write the table, keeping the existing columns of other subjects."""
        before = dict[str, tuple[str, str]]()
        if path.exists():
            text = path.read_text(encoding="utf-8")
            before = {match[1]: (match[2], match[3]) for match in _LINE.finditer(text)}
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
        result, peers = before
        if self.subject == "temper":
            result = self._result(row.id)
        else:
            peers = self._result(row.id)
        return f"| {row.id} | {row.fault} | {row.outcome} | {result} | {peers} |"

    def _result(self, row: str) -> str:
        passed, failed = self._passed[row], self._failed[row]
        if not passed and not failed:
            return ""
        return f"{passed} passed" if not failed else f"**{failed} of {passed + failed} failed**"
