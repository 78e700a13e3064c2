"""Tools that the families share, and invented values for their arguments.

The same task always gets the same values. The families in `held_out` have separate tools.
"""

import random
from collections.abc import Mapping

from proxy.conversation.json import JsonObject, JsonValue

_NAMES = (
    *("Ines Duarte", "Tomasz Wrona", "Keiko Arai", "Sam Okafor", "Lena Brandt", "Ravi Menon"),
    *("Chloé Martin", "Jonas Lund", "Mei Tan", "Omar Haddad", "Zofia Nowak", "Bram de Wit"),
)
_CITIES = ("Lisbon", "Oslo", "Nagoya", "Quito", "Leeds", "Zürich", "Graz", "Perth", "Łódź")
_ROOMS = ("kitchen", "office", "nursery", "attic", "hall", "library", "studio", "cellar")
_GOODS = ("lamp", "kettle", "desk", "monitor", "router", "chair", "scanner", "heater", "shelf")
_TOPICS = ("the invoice", "a broken hinge", "the new badge", "a late parcel", "the door code")
_MONTHS = tuple(range(1, 13))


def describe_tool(name: str, description: str, /, **parameters: JsonValue) -> JsonObject:
    """Describe a tool; a parameter whose name ends with _ is optional."""
    properties: JsonObject = {key.rstrip("_"): _type(kind) for key, kind in parameters.items()}
    required: list[JsonValue] = [key for key in parameters if not key.endswith("_")]
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    function: JsonObject = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def _type(kind: JsonValue) -> JsonValue:
    match kind:
        case str():
            return {"type": kind}
        case list():
            return {"type": "string", "enum": kind}
        case _:
            return kind


_PRIORITIES: list[JsonValue] = ["low", "normal", "high"]
_LABELS: list[JsonValue] = ["shipped", "waiting", "review"]
_ENDPOINT: JsonObject = {
    "type": "object",
    "properties": {
        "host": {"type": "string"},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "scheme": {"type": "string", "enum": ["http", "https"]},
    },
    "required": ["host", "port", "scheme"],
    "additionalProperties": False,
}
_LIMIT: JsonObject = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
_TAGS: JsonObject = {"type": "array", "items": {"type": "string"}}
_SHARE: JsonObject = {"type": "number", "minimum": 0, "maximum": 1}

READERS = (
    describe_tool("find_customer", "Find a customer by name.", name="string"),
    describe_tool("latest_order", "Return the latest order of a customer.", customer_id="string"),
    describe_tool("order_items", "Return the articles of an order.", order_id="string"),
    describe_tool("get_stock", "Return how many pieces of an article are in stock.", sku="string"),
    describe_tool("get_supplier", "Return who supplies an article.", sku="string"),
    describe_tool("get_weather", "Return the weather of a city.", city="string"),
    describe_tool("read_page", "Return a page of a document.", document="string", page="integer"),
    describe_tool("search_notes", "Search the notes of the desk.", query="string"),
)
WRITERS = (
    describe_tool("refund_order", "Refund an order.", order_id="string", amount="number"),
    describe_tool("cancel_order", "Cancel an order.", order_id="string"),
    describe_tool("reorder_article", "Order more of an article.", sku="string", quantity="integer"),
    describe_tool(
        "send_message", "Send a chat message to a colleague.", to="string", text="string"
    ),
    describe_tool("send_email", "Send an email.", to="string", subject="string", body="string"),
    describe_tool("send_sms", "Send a short message to a phone.", number="string", text="string"),
    describe_tool("create_ticket", "Open a ticket.", title="string", priority=_PRIORITIES),
    describe_tool("create_task", "Put a task on somebody's list.", title="string", owner="string"),
    describe_tool("create_event", "Put an event into the calendar.", title="string", date="string"),
    describe_tool(
        "set_thermostat", "Set the temperature of a room.", room="string", degrees="integer"
    ),
    describe_tool(
        "set_light", "Set the light of a room, in percent.", room="string", percent="integer"
    ),
    describe_tool("book_room", "Book a room.", room="string", date="string", people="integer"),
    describe_tool("label_parcel", "Label a parcel.", parcel="string", label=_LABELS),
    describe_tool("write_file", "Write a file.", path="string", content="string"),
    describe_tool("archive_file", "Move a file into the archive.", path="string"),
    describe_tool(
        "notify_customer", "Send a customer a note.", customer_id="string", text="string"
    ),
    describe_tool(
        "deploy_service",
        "Deploy a service.",
        service="string",
        endpoint=_ENDPOINT,
        replicas="integer",
        memory_limit=_LIMIT,
        traffic=_SHARE,
        tags_=_TAGS,
    ),
)
TOOLS: Mapping[str, JsonObject] = {
    str(function["name"]): tool
    for tool in (*READERS, *WRITERS)
    if isinstance(function := tool["function"], dict)
}
WRITING = frozenset(name for name, tool in TOOLS.items() if tool in WRITERS)


class SampleValues:
    """Draws values at random; an instance such as "chain-3" always gets the same values."""

    def __init__(self, instance: str) -> None:
        self.draw = random.Random(instance)  # noqa: S311 - made-up values

    def name(self) -> str:
        return self.draw.choice(_NAMES)

    def city(self) -> str:
        return self.draw.choice(_CITIES)

    def rooms(self, count: int) -> list[str]:
        return self.draw.sample(_ROOMS, count)

    def sku(self) -> str:
        return f"{self.draw.choice(_GOODS)}-{self.number(100, 999)}"

    def topic(self) -> str:
        return self.draw.choice(_TOPICS)

    def date(self) -> str:
        return f"2027-{self.draw.choice(_MONTHS):02}-{self.number(1, 28):02}"

    def code(self, prefix: str) -> str:
        return f"{prefix}-{self.number(10_000, 99_999)}"

    def number(self, least: int, most: int) -> int:
        return self.draw.randint(least, most)

    def phone(self) -> str:
        return f"+999 555 {self.number(1000, 9999)}"

    def choice(self, of: list[str]) -> str:
        return self.draw.choice(of)


def tools_with(needed: list[str], values: SampleValues, count: int) -> tuple[JsonObject, ...]:
    """Return the needed tools and other tools, `count` in total, in random order."""
    others = [name for name in TOOLS if name not in needed]
    extra = values.draw.sample(others, max(0, min(count - len(needed), len(others))))
    names = [*dict.fromkeys(needed), *extra]
    values.draw.shuffle(names)
    return tuple(TOOLS[name] for name in names)
