"""Families of tasks with a single step: one call, a choice among tools, several calls."""

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.actions import USER_REQUESTS, any_user_request
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, tools_with
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import PlannedTask

_TELL = "Then tell me the reference."
_TEXTS = (
    'print("héllo, {name}!")\n\nfor i in range({number}):\n\tprint(i, \'"quoted"\')\n',
    "C:\\Users\\{name}\\notes\\{number}.txt\r\nline two \\n is not a line end\n",
    '{{"name": "{name}", "values": [1, {number}, null], "path": "a/b\\\\c"}}',
    "<tag attr='x'>{name} & co — №{number}</tag>\n# 日本語のテキスト\n",
    "SELECT * FROM \"users\" WHERE name = '{name}' AND id <> {number}; -- done?\n",
    "key = '''{name}'''\nother = \"\"\"{number}\"\"\"\n```python\nx = [1, 2]\n```\n",
    "Zeile eins: „{name}“\n\n\n    eingerückt um vier, {number} %\n",
)


def single(index: int) -> PlannedTask:
    """Return task `index`: one call to one of three tools."""
    values = SampleValues(f"single-{index}")
    request = any_user_request(values)
    builder = TaskBuilder("single", index, tools_with([request.call.name], values, 3))
    builder.change(request.call)
    return builder.done(f"{request.text} {_TELL}")


def choose(index: int) -> PlannedTask:
    """Return task `index`: one call to one of many tools, some of which are near synonyms."""
    values = SampleValues(f"choose-{index}")
    request = any_user_request(values)
    count = values.number(8, 25)
    builder = TaskBuilder(
        "choose", index, tools_with([*USER_REQUESTS], values, max(count, len(USER_REQUESTS)))
    )
    builder.change(request.call)
    return builder.done(f"{request.text} {_TELL}")


def parallel(index: int) -> PlannedTask:
    """Return task `index`: several independent calls in one reply."""
    values = SampleValues(f"parallel-{index}")
    rooms = values.rooms(values.number(2, 4))
    calls = [
        PlannedCall("set_thermostat", {"room": room, "degrees": values.number(15, 25)})
        for room in rooms
    ]
    builder = TaskBuilder("parallel", index, tools_with(["set_thermostat"], values, 4))
    builder.change(*calls)
    wished = ", ".join(f"{call.arguments['room']} {call.arguments['degrees']}" for call in calls)
    return builder.done(f"Set the thermostats, all at once: {wished} degrees. {_TELL}")


def schema(index: int) -> PlannedTask:
    """Return task `index`: one call with a nested object, numbers and a nullable value."""
    values = SampleValues(f"schema-{index}")
    host, port = f"{values.sku()}.example.org", values.number(1024, 65000)
    scheme, limit = values.choice(["http", "https"]), values.number(128, 4096)
    has_limit = values.number(0, 2) > 0
    share = values.number(1, 9) / 10
    endpoint: JsonObject = {"host": host, "port": port, "scheme": scheme}
    tags: list[JsonValue] = [values.city(), values.sku()]
    arguments: JsonObject = {
        "service": values.sku(),
        "endpoint": endpoint,
        "replicas": values.number(1, 9),
        "memory_limit": limit if has_limit else None,
        "traffic": share,
        "tags": tags,
    }
    builder = TaskBuilder("schema", index, tools_with(["deploy_service"], values, 4))
    builder.change(PlannedCall("deploy_service", arguments))
    memory = f"at most {limit} MB" if has_limit else "no limit of memory (null)"
    return builder.done(
        f"Deploy {arguments['service']} at host {host}, port {port}, scheme {scheme}, "
        f"with {arguments['replicas']} replicas, {memory}, {share} of the traffic, "
        f"tags {tags[0]} and {tags[1]}. {_TELL}"
    )


def verbatim(index: int) -> PlannedTask:
    """Return task `index`: one call with a text that the tool must receive unchanged."""
    values = SampleValues(f"verbatim-{index}")
    text = values.choice([*_TEXTS]).format(name=values.name(), number=values.number(10, 999))
    path = f"drafts/{values.sku()}.txt"
    builder = TaskBuilder("verbatim", index, tools_with(["write_file"], values, 3))
    builder.change(PlannedCall("write_file", {"path": path, "content": text}))
    return builder.done(
        f"Write exactly this, between the lines, to {path}:\n---\n{text}---\n{_TELL}"
    )
