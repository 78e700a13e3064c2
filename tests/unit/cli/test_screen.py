import io
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from proxy import facts
from proxy.api.feed_events import Batch, Cards, InitialState, Pending, Sums, ToolCards
from proxy.cli.screen import Screen, duration
from proxy.facts import WORDS, ReplyOutcome
from proxy.observability.history import Counts, CountsBySpan
from proxy.observability.record import (
    WAITING,
    AttemptRecord,
    RequestRecord,
    RequestStage,
    ToolRecord,
)
from proxy.observability.rows import OVER, PendingCall, Row, ToolServerCard, row_of
from tests.fakes.feed import CARD, STATE
from tests.fakes.hostile_text import HOSTILE, has_control

RECORD = RequestRecord(
    id="r",
    client="anna",
    begun_at=1000.0,
    seconds=1.0,
    status=200,
    model="qwen",
    facts=(facts.Rescued("hermes", "look"), facts.Repaired("look")),
    outcome=ReplyOutcome.REPAIRED,
    attempts=(AttemptRecord("as_asked", 0.0, 1.0, "prose"), AttemptRecord("nudged", 1.0, 1.0)),
)


def draw(screen: Screen, width: int, *, is_live: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(screen.draw(width, 1010.0, is_live=is_live))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    return text


def running_row(phase: RequestStage, progress: float | None = None) -> Row:
    return row_of(RECORD, f"abc-{phase.value}", phase=phase.value, progress=progress)


def test_the_screen_shows_totals_and_models_and_live_requests() -> None:
    screen = Screen(STATE)
    screen.apply(
        Batch(2, (running_row(RequestStage.READING, 0.38), running_row(RequestStage.ASKED_AGAIN)))
    )
    text = " ".join(draw(screen, 100).split())
    assert "412 requests in the last hour, 32 needed help" in text
    assert "22 repaired 7 retried 1 other model 2 gave up 88 % of prompt tokens cached" in text
    assert "qwen loaded 1/4 2 8192" in text
    assert "10 s reading the prompt 38 % qwen anna" in text
    assert "10 s retrying: prose instead of a call qwen anna" in text
    assert "No repairs yet." in text
    assert "live" in text
    assert "reconnecting" in draw(screen, 100, is_live=False)
    assert "worker" not in text
    assert "worker 2 of 4" in draw(Screen(replace(STATE, workers=4, worker=2)), 100)


def test_the_latest_ten_repaired_requests_are_shown() -> None:
    rows = tuple(row_of(replace(RECORD, begun_at=float(time)), f"abc-{time}") for time in range(30))
    screen = Screen(replace(STATE, requests=rows))
    text = draw(screen, 100)
    assert text.count("A call of look written as text (hermes) was recognized. +1") == 10
    assert "No requests are running." in text


def test_a_new_state_keeps_finished_requests_of_the_same_process() -> None:
    first, second = (row_of(RECORD, f"abc-{time}") for time in (1, 2))
    screen = Screen(replace(STATE, requests=(running_row(RequestStage.QUEUED), first)))
    screen.apply(replace(STATE, requests=(second,)))
    text = draw(screen, 100)
    assert text.count("A call of look written") == 2
    assert "No requests are running." in text
    screen.apply(replace(STATE, instance="def", requests=(second,)))
    assert draw(screen, 100).count("A call of look written") == 1


@pytest.mark.parametrize("width", [80, 40])
def test_the_screen_fits_narrow_terminals(width: int) -> None:
    screen = Screen(
        replace(STATE, requests=(row_of(RECORD, "abc-1"), running_row(RequestStage.QUEUED)))
    )
    text = draw(screen, width)
    assert "waiting for a slot" in text
    assert "A call of look" in text


def test_at_80_columns_only_long_names_and_sentences_are_truncated() -> None:
    model = "Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL-" * 2
    record = replace(RECORD, model=model, facts=(facts.Rescued("hermes", "look" * 30),))
    running = row_of(record, "abc-2", phase=RequestStage.ASKED_AGAIN.value)
    card = replace(CARD, name=model)
    state = replace(STATE, models=(card,), requests=(row_of(record, "abc-1"), running))
    lines = [line.split() for line in draw(Screen(state), 80).splitlines()]
    assert [line[1:] for line in lines if line and line[0].startswith("Qwen3")] == [
        ["loaded", "1/4", "2", "8192"]
    ]
    stage = next(line for line in lines if line[:2] == ["10", "s"])
    assert stage[2:5] == ["retrying:", "prose", "instead"]
    outcome = next(line for line in lines if "repaired" in line and "call" in line)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", outcome[0])


def test_each_event_replaces_the_shown_data_of_its_kind() -> None:
    screen = Screen(STATE)
    screen.apply(Cards(2, (replace(CARD, state="failed", slots=None, window=None),)))
    screen.apply(Sums(3, 0.0, CountsBySpan({"": Counts(requests=1, failed=1)}, {}), ()))
    text = " ".join(draw(screen, 80).split())
    assert "failed 1 2 -" in text
    assert "1 request in the last hour, 0 needed help 1 failed" in text
    screen.apply(STATE)
    assert "412 requests" in draw(screen, 80)
    many = tuple(row_of(RECORD, f"abc-{number}") for number in range(2000))
    screen.apply(Batch(4, many))
    assert draw(screen, 80).count("A call of look") == 10


def test_markup_in_the_name_of_a_model_is_shown_literally() -> None:
    row = row_of(replace(RECORD, model="[red]x[/red]"), "abc-1", phase=RequestStage.QUEUED.value)
    assert "[red]x[/red]" in draw(Screen(replace(STATE, requests=(row,))), 100)


def test_every_stage_of_a_request_has_a_label() -> None:
    assert WORDS.stages.keys() == {OVER, *(stage.value for stage in RequestStage)}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.2 s"), (12.0, "12 s"), (120.0, "2 min"), (7300.0, "2 h 1 min")]
)
def test_a_duration_is_written_in_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


CALL = PendingCall("x", "search", "delete", "{}", "anna", "abc-1", 45.0)
SERVER = ToolServerCard("search", "ready", "", "tcp", "2025", 3, 1, 12, 2, 0, "")


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_and_line_breaks_in_names_add_no_lines(text: str) -> None:
    hostile, plain = (draw(Screen(_state_with(name)), 200) for name in (text, "m"))
    assert not has_control(hostile.replace("\n", ""))
    assert len(hostile.splitlines()) == len(plain.splitlines())


def _state_with(text: str) -> InitialState:
    """Return a state with `text` in every field that clients, models and tool servers set."""
    row = replace(row_of(RECORD, "r"), model=text, client=text, repairs=(text,))
    return replace(
        STATE,
        models=(replace(CARD, name=text, state=text),),
        requests=(row, replace(row, id="2", phase=text)),
        tool_servers=(replace(SERVER, name=text, state=text, problem=text),),
        confirmations=(replace(CALL, server=text, tool=text),),
    )


def test_a_call_waiting_for_approval_is_shown_with_the_dashboard() -> None:
    screen = Screen(replace(STATE, confirmations=(CALL,)), "http://h:1/ui")
    text = draw(screen, 80)
    assert "1 call is waiting for approval: search.delete" in text
    assert "Allow or refuse at http://h:1/ui" in text
    screen.apply(Pending(2, (CALL, replace(CALL, tool="drop"))))
    assert "2 calls are waiting for approval: search.delete, search.drop" in draw(screen, 80)
    draw(screen, 40)
    screen.apply(Pending(3, ()))
    assert "person" not in draw(screen, 80)


def test_the_row_of_a_request_that_waits_for_approval_names_the_call() -> None:
    waiting = ToolRecord("search", "delete", "1", 1, 0.0, 0.0, WAITING)
    phase = RequestStage.WAITING_FOR_PERSON.value
    for tools, stage in (((waiting,), "waiting for approval: search.delete"), ((), "approval")):
        row = row_of(replace(RECORD, tools=tools), "abc-1", phase=phase)
        assert stage in draw(Screen(replace(STATE, requests=(row,))), 100)


def test_the_screen_shows_tool_servers_only_if_any_are_configured() -> None:
    assert "Tool server" not in draw(Screen(STATE), 80)
    down = replace(SERVER, name="time", state="down", tools=None, problem="cannot be used: gone")
    screen = Screen(replace(STATE, tool_servers=(SERVER,)))
    assert "search ready 3 12 2" in " ".join(draw(screen, 80).split())
    screen.apply(ToolCards(2, (SERVER, down)))
    text = " ".join(draw(screen, 80).split())
    assert "time down - 12 2" in text
    assert "time: cannot be used: gone" in text
    assert "search ready 12 2" in " ".join(draw(screen, 40).split())
