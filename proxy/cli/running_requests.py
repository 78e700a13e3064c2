"""Running requests as text, for `temper serve`, `temper top` and `temper chat`.

12 s  generating, 123 tokens  qwen3-8b  by anna
"""

from collections.abc import Iterator

from proxy.cli.status_line import format_seconds
from proxy.facts import WORDS
from proxy.observability.board import Board
from proxy.observability.record import RUNNING, WAITING, RequestStage
from proxy.observability.rows import Row
from proxy.observability.sentences import escape

_LEAST_SECONDS = 1.0  # a request that ends earlier would only flicker
_SECONDS_WIDTH = 5  # characters of "119 s"; durations in minutes are wider


def describe_reading(share: float | None) -> str:
    """Describe the reading of a prompt; without a `share`, no percentage is shown."""
    # many engines report a share only every 2,048 tokens: 0 % would look like a stall
    return f"reading the prompt {100 * share:.0f} %" if share else "reading the prompt"


def describe_retry(defect: str) -> str:
    """Describe a retry after a reply with this `defect`; "" means that there was no reply."""
    _, reason = WORDS.defects.get(defect, ("", defect))
    return f"retrying: {reason}" if reason else "retrying"


def describe_phase(row: Row) -> str:
    """Describe what a running request waits for, and how many tokens it has generated."""
    generated = row.tokens.output
    count = f", {generated:,} {'token' if generated == 1 else 'tokens'}" if generated else ""
    match row.phase:
        case RequestStage.READING.value if not generated:
            return describe_reading(row.progress)
        case RequestStage.READING.value | RequestStage.STREAMING.value:
            return f"generating{count}"
        case RequestStage.ASKED_AGAIN.value:
            defects = [attempt.defect or "" for attempt in row.attempts[:-1]]
            return f"{describe_retry(next(reversed(defects), ''))}{count}"
        case RequestStage.RUNNING_TOOL.value:
            return _describe_tools(row, "running", RUNNING)
        case RequestStage.WAITING_FOR_PERSON.value:
            return _describe_tools(row, f"{WORDS.stages[row.phase]}:", WAITING)
        case _:
            return WORDS.stages.get(row.phase, row.phase)


def describe_requests(board: Board, most: int) -> Iterator[str]:
    """Yield a line for each running request, the oldest first; at most `most` lines."""
    count = board.running_count
    rows = board.running_rows(most if count <= most else most - 1)
    for row in rows:
        if row.seconds >= _LEAST_SECONDS:
            yield _line(row)
    if count > len(rows):
        yield f"{'':{_SECONDS_WIDTH}}  and {count - len(rows):,} more"


def _line(row: Row) -> str:
    # in this order, because a narrow terminal cuts off the end
    parts = [
        f"{format_seconds(row.seconds):>{_SECONDS_WIDTH}}",
        describe_phase(row),
        row.model or row.service or "",
        f"by {row.client}" if row.client else "",
    ]
    return escape("  ".join(filter(None, parts)))


def _describe_tools(row: Row, verb: str, status: str) -> str:
    names = [
        ".".join(filter(None, (tool.server, tool.name)))
        for tool in row.tools
        if tool.status == status
    ]
    return f"{verb} {', '.join(names)}" if names else WORDS.stages[row.phase]
