"""Tasks that book a seat and a hotel; if the hotel is full, the seat is released and rebooked."""

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, describe_tool
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import PlannedTask
from temper_evals.scenarios.worlds import CannedOutcome, reference

_CLASSES: list[JsonValue] = ["first", "second", "sleeper"]
_SEAT: JsonObject = {"train": "string", "day": "string", "class": _CLASSES, "quiet": "boolean"}
_TOOLS = (
    describe_tool(
        "search_trains", "Return trains.", origin="string", destination="string", day="string"
    ),
    describe_tool("get_fare", "Return what a train costs.", train="string"),
    describe_tool("reserve_seat", "Reserve a seat.", **_SEAT),
    describe_tool("release_seat", "Give a reserved seat back.", reservation="string"),
    describe_tool("change_seat", "Take another seat.", reservation="string", quiet="boolean"),
    describe_tool(
        "reserve_hotel", "Reserve a hotel.", hotel="string", day="string", nights="integer"
    ),
    describe_tool("release_hotel", "Give a hotel's room back.", reservation="string"),
    describe_tool("cancel_trip", "Cancel all of a traveller's trip.", traveller="string"),
)
_CHANGING = frozenset(
    {"reserve_seat", "release_seat", "change_seat", "reserve_hotel", "release_hotel", "cancel_trip"}
)


def travel(index: int) -> PlannedTask:
    """Return task `index`: book a seat and a hotel; unless 3 divides `index`, the hotel is full."""
    values = SampleValues(f"travel-{index}")
    tools = tuple(values.draw.sample(_TOOLS, len(_TOOLS)))
    builder = TaskBuilder("travel", index, tools, _CHANGING)
    day, later = f"2027-05-{values.number(10, 15)}", f"2027-05-{values.number(16, 28)}"
    hotel: JsonObject = {
        "hotel": f"Hotel {values.sku()}",
        "day": day,
        "nights": values.number(2, 9),
    }
    travel_class, is_quiet = values.choice(["first", "second"]), values.number(0, 1) > 0
    cities = values.draw.sample(("Turin", "Ghent", "Brno", "Vaasa", "Cádiz", "Lviv"), 2)
    seat: JsonObject = {"class": travel_class, "quiet": is_quiet}
    reserved = _seat(builder, values, cities, {**seat, "day": day})
    if index % 3:
        problem = f"no room is free on {day}, one is from {later} on"
        full = builder.ends("reserve_hotel", hotel, CannedOutcome(problem, fails=True))
        builder.step(full)
        mark = reference(builder.name, reserved.name, reserved.arguments)
        release = PlannedCall("release_seat", {"reservation": mark})
        builder.change(release, needs=[mark, problem])
        _seat(builder, values, cities, {**seat, "day": later})
        hotel = {**hotel, "day": later}
    builder.change(PlannedCall("reserve_hotel", hotel), needs=[str(hotel["day"])])
    return builder.done(
        f"On {day} I go from {cities[0]} to {cities[1]}: reserve a {travel_class} class seat, "
        f"{'quiet' if is_quiet else 'not quiet'}, in the train that arrives first, and then "
        f"{hotel['hotel']} for {hotel['nights']} nights from that day on. If it is full, release "
        "the seat, and take both in the same way on the day from which it has a room. Tell me the "
        "references of all that you did."
    )


def _seat(
    builder: TaskBuilder, values: SampleValues, cities: list[str], wanted: JsonObject
) -> PlannedCall:
    """Plan a search for trains, and a seat in the train that arrives first.

    This train is never the first in the list.
    """
    hours = values.draw.sample(range(9, 23), 3)
    if hours[0] == min(hours):
        hours.reverse()
    trains: list[JsonValue] = [
        {"train": values.code("TR"), "arrives": f"{hour:02}:{values.number(10, 59)}"}
        for hour in hours
    ]
    route: JsonObject = {"origin": cities[0], "destination": cities[1], "day": wanted["day"]}
    builder.step(builder.returns("search_trains", route, trains), needs=[str(wanted["day"])])
    first = trains[hours.index(min(hours))]
    assert isinstance(first, dict)  # noqa: S101 - made above
    call = PlannedCall("reserve_seat", {"train": first["train"], **wanted})
    builder.change(call, needs=[json.dump_text(trains)])
    return call
