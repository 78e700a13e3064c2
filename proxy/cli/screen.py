"""The screen of `temper top`: draws the state of the dashboard's feed for a terminal. No I/O.

Text from clients and models is escaped and never interpreted as markup.
"""

from datetime import datetime
from typing import TypeAlias

from msgspec import structs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.api.feed_events import Batch, Cards, InitialState, ModelCard, Pending, Sums, ToolCards
from proxy.cli.running_requests import describe_phase
from proxy.facts import WORDS
from proxy.observability.board import MOST_ROWS
from proxy.observability.history import Counts
from proxy.observability.rows import OVER, PendingCall, Row, ToolServerCard
from proxy.observability.sentences import visible

# the outcome of a request -> its color; "clean" requests are not listed
_COLOURS = {
    "repaired": "blue",
    "retried": "yellow",
    "fallback": "yellow",
    "exhausted": "red",
    "failed": "red",
}
_STATES = {"loaded": "green", "loading": "yellow", "failed": "red"}
_TOOL_STATES = {"ready": "green", "starting": "yellow", "waiting": "yellow", "down": "red"}
_FLEXIBLE = ("What was done", "Model", "Stage", "Client", "Tool server")  # cut on narrow terminals
_NARROW = 64  # on a terminal with fewer columns, tables omit their secondary columns

Change: TypeAlias = InitialState | Batch | Cards | ToolCards | Pending | Sums


class Screen:
    """The state of a Temper as reported by its feed; `page` is the dashboard's address."""

    def __init__(self, state: InitialState, page: str = "/ui") -> None:
        self._state = state
        self._page = page
        self._rows = {row.id: row for row in state.requests}

    def apply(self, change: Change) -> None:
        match change:
            case InitialState():
                self._take(change)
            case Batch():
                self._rows |= {row.id: row for row in change.rows}
                self._forget()
            case _:
                self._state = structs.replace(self._state, **structs.asdict(change))

    def draw(self, width: int, now: float, *, is_live: bool = True) -> RenderableType:
        """Draw the state for a terminal of `width` columns; `now` is a Unix time."""
        running = [row for row in self._rows.values() if row.phase != OVER]
        over = [row for row in self._rows.values() if row.phase == OVER and row.repairs]
        latest = sorted(over, key=lambda row: row.at, reverse=True)[:10]
        is_narrow = width < _NARROW
        return Group(
            self._head(now, is_live=is_live),
            *_pending(self._state.confirmations, self._page),
            _totals(self._state.totals.hour.get("", Counts())),
            Text(),
            _models(self._state.models, is_narrow=is_narrow),
            Text(),
            *_tool_servers(self._state.tool_servers, is_narrow=is_narrow),
            _running_requests(running, now, is_narrow=is_narrow),
            Text(),
            _repairs(latest, is_narrow=is_narrow),
        )

    def _take(self, state: InitialState) -> None:
        """Replace the state, but keep finished rows: the feed sends only new and running rows."""
        is_same = state.instance == self._state.instance  # False after a restart of Temper
        over = {row.id: row for row in self._rows.values() if is_same and row.phase == OVER}
        self._rows = over | {row.id: row for row in reversed(state.requests)}
        self._state = state
        self._forget()

    def _forget(self) -> None:
        """Drop the rows whose last change is the oldest.

        Running rows are not affected, because they have changed recently.
        """
        while len(self._rows) > MOST_ROWS:
            del self._rows[next(iter(self._rows))]

    def _head(self, now: float, *, is_live: bool) -> Text:
        state = self._state
        head = Text("Temper ", style="bold", overflow="ellipsis", no_wrap=True)
        head.append(visible(f"{state.version}  "), style="dim")
        head.append("live" if is_live else "reconnecting", style="green" if is_live else "yellow")
        if state.workers > 1:
            head.append(f"  worker {state.worker} of {state.workers}", style="dim")
        return head.append(f"  up {duration(max(0.0, now - state.started))}  q quits", style="dim")


def _foreign(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style)


def _cell(text: str, style: str = "") -> Text:
    """Return foreign text for a column; the text is cut if the column is too narrow."""
    return Text(visible(text), style=style, no_wrap=True, overflow="ellipsis")


def _totals(counts: Counts) -> Text:
    helped = counts.repaired + counts.retried + counts.fallback + counts.exhausted
    noun = "request" if counts.requests == 1 else "requests"
    line = Text(f"{counts.requests} {noun}", style="bold").append(
        f" in the last hour, {helped} needed help", style="not bold"
    )
    for name, colour in _COLOURS.items():
        if number := getattr(counts, name):
            word, _ = WORDS.outcomes[name]
            line.append("  ").append(f"{number} {word}", style=f"not bold {colour}")
    if counts.measured:
        share = f"{round(100 * counts.cached / counts.measured)} % of prompt tokens cached"
        line.append(f"  {share}", style="not bold dim")
    return line


def _models(models: tuple[ModelCard, ...], *, is_narrow: bool) -> Table:
    table = _table("Model", "State", "Slots", "Waiting", *(() if is_narrow else ("Window",)))
    for model in models:
        state = _cell(model.state, style=_STATES.get(model.state, "dim"))
        slots = f"{model.busy}/{model.slots}" if model.slots is not None else str(model.busy)
        window = () if is_narrow else (Text(str(model.window or "-")),)
        table.add_row(_cell(model.name), state, Text(slots), Text(str(model.waiting)), *window)
    return table


def _pending(calls: tuple[PendingCall, ...], page: str) -> tuple[RenderableType, ...]:
    if not calls:
        return ()
    names = ", ".join(f"{call.server}.{call.tool}" for call in calls)
    subject = "1 call is" if len(calls) == 1 else f"{len(calls)} calls are"
    line = _foreign(f"{subject} waiting for approval: {names}", style="bold yellow")
    return line, Text(f"Allow or refuse at {page}", style="yellow"), Text()


def _tool_servers(
    servers: tuple[ToolServerCard, ...], *, is_narrow: bool
) -> tuple[RenderableType, ...]:
    if not servers:
        return ()
    table = _table("Tool server", "State", *(() if is_narrow else ("Tools",)), "Calls", "Failed")
    for server in servers:
        state = _cell(server.state, style=_TOOL_STATES.get(server.state, "dim"))
        tools = () if is_narrow else (Text("-" if server.tools is None else str(server.tools)),)
        table.add_row(
            _cell(server.name),
            state,
            *tools,
            Text(str(server.calls)),
            Text(str(server.failures)),
        )
    problems = [
        _foreign(f"{server.name}: {server.problem}", style="red")
        for server in servers
        if server.problem
    ]
    return table, *problems, Text()


def _running_requests(rows: list[Row], now: float, *, is_narrow: bool) -> RenderableType:
    if not rows:
        return Text("No requests are running.", style="dim")
    table = _table("Running", "Stage", *(() if is_narrow else ("Model", "Client")))
    for row in sorted(rows, key=lambda row: row.at):
        details = () if is_narrow else (_cell(row.model or "-"), _cell(row.client or "-"))
        table.add_row(Text(duration(max(0.0, now - row.at))), _cell(describe_phase(row)), *details)
    return table


def _repairs(rows: list[Row], *, is_narrow: bool) -> RenderableType:
    if not rows:
        return Text("No repairs yet.", style="dim")
    table = _table(*(() if is_narrow else ("Time",)), "Outcome", "What was done")
    for row in rows:
        outcome = row.outcome or "failed"
        word, colour = WORDS.outcomes[outcome][0], _COLOURS.get(outcome, "")
        repairs_text = _cell(row.repairs[0])
        if row.repairs[1:]:
            repairs_text.append(f" +{len(row.repairs) - 1}", style="dim")
        moment = datetime.fromtimestamp(row.at).astimezone().strftime("%H:%M:%S")
        time = () if is_narrow else (Text(moment, style="dim"),)
        table.add_row(*time, Text(word, style=colour), repairs_text)
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
    for name in names:
        # rich narrows columns without `no_wrap` first; the cells set `no_wrap` themselves
        table.add_column(name, no_wrap=name not in _FLEXIBLE, overflow="ellipsis")
    return table


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds // 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
