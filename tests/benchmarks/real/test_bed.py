"""The tasks and tools for real models: each task has one solution, and only that is right."""

from itertools import pairwise

import jsonschema
import pytest

from benchmarks.real.bed import Need, Task, Tool, ToolSet, World
from benchmarks.real.judging import MadeCall, judge
from benchmarks.real.loop import MOST_REQUESTS
from benchmarks.real.tasks import TASKS, TOOL_SETS
from proxy.conversation import json
from proxy.conversation.json import JsonObject

# the calls of a model that makes no errors
SOLUTIONS: dict[int, list[tuple[str, JsonObject]]] = {
    1: [("find_order", {"customer": "Nina Weber"}), ("cancel_order", {"order_id": "R-2071"})],
    2: [("get_order", {"order_id": "r-2044"})],
    3: [
        ("check_stock", {"product": "desk lamp"}),
        ("place_order", {"sku": "DL-14", "quantity": 2, "customer": "Omar Haddad"}),
    ],
    4: [
        ("find_order", {"customer": "Petra Novak"}),
        ("get_order", {"order_id": "R-2058"}),
        (
            "message_customer",
            {"customer": "Petra Novak", "text": "Your tracking number is TR881204."},
        ),
    ],
    5: [
        ("message_customer", {"customer": "Paul Martin", "text": "Your backpack is on its way."}),
    ],
    6: [
        ("check_stock", {"product": "Coffee grinder"}),
        ("place_order", {"sku": "CG-02", "quantity": 1, "customer": "Lena Fischer"}),
        ("message_customer", {"customer": "Lena Fischer", "text": "Your order is R-3101."}),
    ],
    7: [
        ("check_stock", {"product": "blue kettle"}),
        ("check_stock", {"product": "red kettle"}),
        ("place_order", {"sku": "KT-R9", "quantity": 1, "customer": "Jonas Meyer"}),
    ],
    8: [],
    21: [
        ("list_files", {"folder": "/inbox"}),
        ("move_file", {"path": "inbox/invoice-0423.pdf", "folder": "finance"}),
    ],
    22: [
        ("read_file", {"path": "docs/meeting.txt"}),
        ("write_note", {"title": "Deadline", "text": "March 14"}),
    ],
    23: [],
    24: [("search_notes", {"query": "Garden"}), ("delete_note", {"note_id": "n-31"})],
    25: [("read_file", {"path": "docs/wifi.txt"})],
    26: [
        ("list_files", {"folder": "reports"}),
        ("read_file", {"path": "reports/q3.txt"}),
        ("write_note", {"title": "Revenue", "text": "The revenue is 84,300 euros."}),
    ],
    27: [
        ("read_file", {"path": "todo.txt"}),
        ("move_file", {"path": "docs/plan-2019.txt", "folder": "archive"}),
    ],
    28: [],
    41: [("get_weather", {"city": "Lisbon"}), ("get_weather", {"city": "Oslo, Norway"})],
    42: [
        ("search_flights", {"origin": "Zurich", "destination": "Lisbon", "day": "friday"}),
        ("book_flight", {"flight_id": "LX-318", "passenger": "Ida Brandt"}),
    ],
    43: [
        ("find_hotel", {"city": "Vienna"}),
        ("book_hotel", {"hotel_id": "H-71", "nights": 2, "guest": "Tom Okafor"}),
    ],
    44: [("set_reminder", {"text": "Renew passport", "day": "tuesday"})],
    45: [
        ("get_weather", {"city": "Bergen"}),
        ("set_reminder", {"text": "Bergen: 9 degrees", "day": "saturday"}),
    ],
    46: [
        ("search_flights", {"origin": "Berlin", "destination": "Rome", "day": "monday"}),
        ("book_flight", {"flight_id": "AZ-405", "passenger": "Eva Lund"}),
        ("set_reminder", {"text": "Booking BK-5511", "day": "sunday"}),
    ],
    47: [
        ("get_weather", {"city": "Madrid"}),
        ("get_weather", {"city": "Dublin"}),
        ("find_hotel", {"city": "Madrid"}),
        ("book_hotel", {"hotel_id": "H-22", "nights": 3, "guest": "Mia Keller"}),
    ],
    48: [],
    9: [("check_stock", {"product": "red kettle"})],
    10: [("cancel_order", {"order_id": "R-2058"})],
    11: [("get_order", {"order_id": "R-2071"})],
    12: [("message_customer", {"customer": "Nina Weber", "text": "wall clock is ready"})],
    13: [("find_order", {"customer": "Paul Martin"})],
    14: [("place_order", {"sku": "DL-14", "quantity": 3, "customer": "Rosa Lind"})],
    15: [("check_stock", {"product": "grinder"})],
    16: [
        (
            "message_customer",
            {"customer": "Omar Haddad", "text": 'We {really} said "sorry", Omar.'},
        )
    ],
    17: [("check_stock", {"product": "blue kettle"})],
    18: [("cancel_order", {"order_id": "R-2071"}), ("cancel_order", {"order_id": "R-2044"})],
    19: [],
    20: [],
    29: [("list_files", {"folder": "docs"})],
    30: [("move_file", {"path": "docs/wifi.txt", "folder": "archive"})],
    31: [("write_note", {"title": "shopping", "text": "bread and cheese"})],
    32: [("search_notes", {"query": "recipe"})],
    33: [("delete_note", {"note_id": "n-31"})],
    34: [("read_file", {"path": "reports/q3.txt"})],
    35: [("write_note", {"title": "config", "text": '{"mode": "fast", "retries": 3}'})],
    36: [("delete_note", {"note_id": "n-31"}), ("delete_note", {"note_id": "n-32"})],
    37: [("read_file", {"path": "docs/meeting.txt"})],
    38: [("search_notes", {"query": "recipe"}), ("delete_note", {"note_id": "n-32"})],
    39: [],
    40: [],
    49: [("get_weather", {"city": "bergen"})],
    50: [("find_hotel", {"city": "dublin"})],
    51: [("search_flights", {"origin": "berlin", "destination": "rome", "day": "monday"})],
    52: [("book_flight", {"flight_id": "LX-318", "passenger": "Noah Stein"})],
    53: [("set_reminder", {"text": "call anna", "day": "sunday"})],
    54: [("book_hotel", {"hotel_id": "H-45", "nights": 4, "guest": "Sara Blum"})],
    55: [("get_weather", {"city": "oslo"})],
    56: [
        ("set_reminder", {"text": "water the plants", "day": "monday"}),
        ("set_reminder", {"text": "water the plants", "day": "thursday"}),
    ],
    57: [("get_weather", {"city": "dublin"})],
    58: [
        ("find_hotel", {"city": "dublin"}),
        ("book_hotel", {"hotel_id": "H-45", "nights": 1, "guest": "Leo Marsh"}),
    ],
    59: [],
    60: [],
}


def make_calls(tools: ToolSet, calls: list[tuple[str, JsonObject]]) -> list[MadeCall]:
    world = World(tools.tables)
    return [
        MadeCall(name, arguments, *tools.run(world, name, arguments)) for name, arguments in calls
    ]


@pytest.mark.parametrize("number", TASKS)
def test_the_solution_of_every_task_is_judged_right(number: int) -> None:
    tools, task = TASKS[number]
    calls = make_calls(tools, SOLUTIONS[number])
    assert [call.result for call in calls if not call.succeeded] == []
    assert judge(task, calls, tools.effects).right
    assert len(calls) < MOST_REQUESTS


@pytest.mark.parametrize("number", TASKS)
def test_a_solution_with_a_missing_or_repeated_or_additional_call_is_judged_wrong(
    number: int,
) -> None:
    tools, task = TASKS[number]
    calls = make_calls(tools, SOLUTIONS[number])
    for index, call in enumerate(calls):
        assert judge(task, [*calls[:index], *calls[index + 1 :]], tools.effects).missing
        if call.name in tools.effects:
            assert judge(task, [*calls, call], tools.effects).repeated
    unasked = MadeCall(min(tools.effects), {"text": "not in any task"}, "", succeeded=True)
    assert judge(task, [*calls, unasked], tools.effects).needless


@pytest.mark.parametrize("number", TASKS)
def test_the_calls_of_a_solution_satisfy_the_schemas_of_their_tools(number: int) -> None:
    tools, _ = TASKS[number]
    by_name = {tool.name: tool for tool in tools.tools}
    for name, arguments in SOLUTIONS[number]:
        description = by_name[name].describe()["function"]
        assert isinstance(description, dict)
        schema = description["parameters"]
        assert isinstance(schema, dict)
        jsonschema.validate(arguments, schema)


def chains() -> list[int]:
    return [number for number, (_, task) in TASKS.items() if task.kind == "chain"]


@pytest.mark.parametrize("number", chains())
def test_a_task_of_the_kind_chain_needs_a_value_from_a_tool_result(number: int) -> None:
    tools, task = TASKS[number]
    calls = make_calls(tools, SOLUTIONS[number])
    values = [
        value
        for need in task.needs
        for expected in need.arguments.values()
        for value in (expected if isinstance(expected, tuple) else (expected,))
        if str(value).lower() not in task.text.lower()
    ]
    results = [call.result.lower() for call in calls]
    assert any(str(value).lower() in result for value in values for result in results)


def test_each_set_has_twenty_tasks_of_four_kinds_and_at_most_six_tools() -> None:
    for tools in TOOL_SETS:
        kinds = [task.kind for task in tools.tasks]
        assert len(kinds) == 20
        assert 5 <= kinds.count("chain") <= 6
        assert 7 <= kinds.count("single") <= 9
        assert 2 <= kinds.count("trap") <= 3
        assert 3 <= kinds.count("none") <= 4
        assert 4 <= len(tools.tools) <= 6


def test_tasks_of_one_set_follow_each_other_to_reuse_the_prompt_cache() -> None:
    changes = [first.name != other.name for (first, _), (other, _) in pairwise(TASKS.values())]
    assert sum(changes) == len(TOOL_SETS) - 1


def test_each_set_has_plain_text_results_and_tools_that_require_arguments() -> None:
    solved = [(tools, make_calls(tools, SOLUTIONS[number])) for number, (tools, _) in TASKS.items()]
    for tools in TOOL_SETS:
        results = [
            call.result for task_tools, calls in solved if task_tools is tools for call in calls
        ]
        assert any(not result.startswith("{") for result in results)
        for tool in tools.tools:
            result, succeeded = tools.run(World(tools.tables), tool.name, {})
            assert not succeeded
            assert "error" in str(json.parse(result))


@pytest.mark.parametrize(
    ("number", "name", "arguments", "hint"),
    [
        (1, "cancel_order", {"order_id": "12345"}, "find_order"),
        (1, "find_order", {"customer": "Nobody"}, "full name"),
        (3, "place_order", {"sku": "desk lamp", "quantity": 2, "customer": "A"}, "check_stock"),
        (3, "place_order", {"sku": "DL-14", "quantity": 20, "customer": "A"}, "1 to 12"),
        (3, "place_order", {"sku": "DL-14", "quantity": "2", "customer": "A"}, "integer"),
        (21, "list_files", {"folder": "attic"}, "inbox"),
        (24, "delete_note", {"note_id": "garden"}, "search_notes"),
        (42, "search_flights", {"origin": "A", "destination": "B", "day": "friday"}, "No flight"),
        (44, "set_reminder", {"text": "a", "day": "someday"}, "monday"),
        (44, "set_alarm", {}, "Unknown tool"),
        (44, "set_reminder", None, "JSON object"),
    ],
)
def test_a_tool_called_with_wrong_arguments_fails_with_a_hint(
    number: int, name: str, arguments: JsonObject | None, hint: str
) -> None:
    tools, _ = TASKS[number]
    result, succeeded = tools.run(World(tools.tables), name, arguments)
    assert not succeeded
    assert hint in result


def test_changes_in_one_world_do_not_appear_in_another_world() -> None:
    tools, _ = TASKS[1]
    world = World(tools.tables)
    tools.run(world, "cancel_order", {"order_id": "R-2071"})
    assert "canceled" in tools.run(world, "get_order", {"order_id": "R-2071"})[0]
    assert "open" in tools.run(World(tools.tables), "get_order", {"order_id": "R-2071"})[0]


def test_moving_or_deleting_an_object_twice_succeeds_both_times() -> None:
    tools, _ = TASKS[21]
    world = World(tools.tables)
    moving: JsonObject = {"path": "inbox/photo.jpg", "folder": "pictures"}
    assert [tools.run(world, "move_file", moving)[1] for _ in range(2)] == [True, True]
    assert "photo" not in tools.run(world, "list_files", {"folder": "inbox"})[0]
    assert [tools.run(world, "delete_note", {"note_id": "n-31"})[1] for _ in range(2)] == [True] * 2
    assert not tools.run(world, "search_notes", {"query": "garden"})[1]


def test_a_need_matches_in_upper_or_lower_case_and_with_any_of_its_texts() -> None:
    need = Need("book", {"city": "rome", "nights": 2, "text": ("14 march", "march 14")})
    assert need.matches("book", {"city": "Rome, Italy", "nights": 2, "text": "On March 14."})
    assert need.matches("book", {"city": "ROME", "nights": "2", "text": "14 March"})
    assert not need.matches("book", {"city": "Rome", "nights": 12, "text": "14 March"})
    assert not need.matches("book", {"city": "Rome", "text": "14 March"})
    assert not need.matches("cancel", {"city": "Rome", "nights": 2, "text": "14 March"})


def test_effects_are_the_names_of_the_tools_marked_with_an_effect() -> None:
    tools = ToolSet(
        "made up",
        "",
        (Tool("look", "", {}, lambda _, __: {}), Tool("act", "", {}, lambda _, __: "", True)),
        {},
        (Task("Do it.", "single"),),
    )
    assert tools.effects == {"act"}
