"""Tasks that plan a meeting at the first time that suits all; in half of them the room is taken."""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, describe_tool
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import PlannedTask
from temper_evals.scenarios.worlds import CannedOutcome

_TIMES = tuple(f"{hour:02}:{minute:02}" for hour in range(8, 18) for minute in (0, 30))
_PEOPLE: JsonObject = {"type": "array", "items": {"type": "string"}}
_REMINDER: JsonObject = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
_INVITATION: JsonObject = {
    "title": "string",
    "day": "string",
    "start": "string",
    "minutes": "integer",
    "room": "string",
    "attendees": _PEOPLE,
    "reminder": _REMINDER,
    "note_": "string",
}
_READERS = (
    describe_tool(
        "list_free_times", "Return when a person is free.", person="string", day="string"
    ),
    describe_tool("list_rooms", "Return the rooms of a floor.", floor="integer"),
    describe_tool("list_meetings", "Return a person's meetings.", person="string", day="string"),
)
_WRITERS = (
    describe_tool("send_invitation", "Invite people to a new meeting in a room.", **_INVITATION),
    describe_tool(
        "move_meeting",
        "Move a meeting that exists.",
        meeting="string",
        day="string",
        start="string",
    ),
    describe_tool("cancel_meeting", "Cancel a meeting that exists.", meeting="string"),
    describe_tool("block_time", "Keep a time free.", person="string", day="string", start="string"),
)
_CHANGING = frozenset({"send_invitation", "move_meeting", "cancel_meeting", "block_time"})


def calendar(index: int) -> PlannedTask:
    """Return task `index`: plan a meeting; with an odd index, the room is taken at first."""
    values = SampleValues(f"calendar-{index}")
    tools = tuple(values.draw.sample((*_READERS, *_WRITERS), len(_READERS) + len(_WRITERS)))
    builder = TaskBuilder("calendar", index, tools, _CHANGING)
    people, day = _people(values, 2 + index % 3 // 2), values.date()
    shared = sorted(values.draw.sample(_TIMES, 3))
    reminder = values.number(1, 6) * 5 if values.number(0, 1) else None
    wanted: JsonObject = {
        "title": f"About {values.topic()}",
        "day": day,
        "start": shared[0],
        "minutes": 30,
        "room": f"room {values.number(100, 499)}",
        "attendees": [*people],
        "reminder": reminder,
    }
    seen = _read_calendars(builder, values, wanted, shared)
    if index % 2:
        free = shared[values.number(1, 2) :]
        problem = _problem(values, wanted, shared, free)
        taken = builder.ends("send_invitation", {**wanted}, CannedOutcome(problem, fails=True))
        builder.step(taken, needs=seen)
        wanted, seen = {**wanted, "start": free[0]}, [*seen, problem]
    builder.change(PlannedCall("send_invitation", wanted), needs=seen)
    return builder.done(_wish(wanted, people))


def _people(values: SampleValues, count: int) -> list[str]:
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn[values.name()] = None
    return [*drawn]


def _read_calendars(
    builder: TaskBuilder, values: SampleValues, wanted: JsonObject, shared: Sequence[str]
) -> list[str]:
    """Plan a reply that looks up the free times of all people; returns the results."""
    people, day = wanted["attendees"], wanted["day"]
    assert isinstance(people, list)  # noqa: S101 - made above
    others = values.draw.sample([time for time in _TIMES if time not in shared], 3 * len(people))
    calls: list[PlannedCall] = []
    seen: list[str] = []
    for index, person in enumerate(people):
        free: list[JsonValue] = [*sorted((*shared, *others[3 * index : 3 * index + 3]))]
        result: JsonObject = {"person": person, "free": free}
        calls.append(builder.returns("list_free_times", {"person": person, "day": day}, result))
        seen.append(json.dump_text(result))
    builder.step(*calls)
    return seen


def _problem(
    values: SampleValues, wanted: JsonObject, shared: Sequence[str], free: Sequence[str]
) -> str:
    """Return the error of a taken room; one of its free times does not suit all people."""
    other = values.draw.choice([time for time in _TIMES if time not in shared])
    times = ", ".join(sorted((*free, other)))
    return f"{wanted['room']} is taken at {wanted['start']}; it is free at {times}"


def _wish(wanted: JsonObject, people: Sequence[str]) -> str:
    reminder = wanted["reminder"]
    reminded = "no reminder (null)" if reminder is None else f"a reminder {reminder} minutes before"
    return (
        f"{', '.join(people)} have to meet on {wanted['day']} in {wanted['room']} for 30 minutes. "
        "Look up all their free times, and send the invitation for the first start that suits "
        "everybody; if the room is taken then, for the next one that suits everybody and the room. "
        f'Title: "{wanted["title"]}", attendees in the order in which I named them, {reminded}; '
        "leave the note out. Tell me the reference of the invitation."
    )
