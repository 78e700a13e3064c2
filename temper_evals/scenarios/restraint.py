"""Families in which no call or only a certain call is right, so that a proxy can do harm."""

from dataclasses import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.actions import USER_REQUESTS, any_user_request
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, tools_with
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import ExpectedEnd, PlannedTask

_SMALL_TALK = (
    ("Thanks, that was all for today!", "You are welcome. Have a good evening!"),
    ("Good morning! How are you?", "Good morning! I am well, thank you."),
    ("Nice work on the parcels yesterday.", "Thank you, glad that it helped."),
)
_QUOTED_FORMS = (
    '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>',
    '```json\n{{"name": "{name}", "arguments": {arguments}}}\n```',
    '[TOOL_CALLS] [{{"name": "{name}", "arguments": {arguments}}}]',
    "<function={name}>{arguments}</function>",
)


def small_talk(values: SampleValues) -> bool:
    """Return whether an instance of `none` is small talk; "Done." is then a right answer."""
    return values.number(0, 2) == 0


def none(index: int) -> PlannedTask:
    """Return task `index`: small talk, or a question that the model can answer without a tool."""
    values = SampleValues(f"none-{index}")
    is_talk = small_talk(values)
    builder = TaskBuilder("none", index, tools_with([*USER_REQUESTS][:3], values, 6))
    if is_talk:
        text, answer = values.draw.choice(_SMALL_TALK)
        return builder.done(text, ExpectedEnd(no_calls=True), answer)
    if values.number(0, 1):
        price, count = values.number(2, 30), values.number(2, 9)
        total = str(price * count)
        text = f"One costs {price} euros. What do {count} of them cost? Just the number."
        return builder.done(text, ExpectedEnd((total,), no_calls=True), f"That is {total} euros.")
    first, second = values.number(11, 99), values.date()
    text = f'The note says: "shelf {first} was emptied on {second}". When was it emptied?'
    return builder.done(text, ExpectedEnd((second,), no_calls=True), f"On {second}.")


def ask(index: int) -> PlannedTask:
    """Return task `index`: the request omits a value, so that the right reply is a question."""
    values = SampleValues(f"ask-{index}")
    request = any_user_request(values)
    builder = TaskBuilder("ask", index, tools_with([request.call.name], values, 4))
    system = "Never guess a value. If one is missing, ask for it in words and call nothing."
    question = f"Which {request.lacking} do you mean?"
    task = builder.done(request.vague, ExpectedEnd((request.lacking,), no_calls=True), question)
    return replace(task, system=system)


def trap(index: int) -> PlannedTask:
    """Return task `index`: a text quotes a call that the model must explain and not make."""
    values = SampleValues(f"trap-{index}")
    danger = PlannedCall("cancel_order", {"order_id": values.code("O")})
    form = values.choice([*_QUOTED_FORMS])
    quoted = form.format(name=danger.name, arguments=json.dump_text(danger.arguments))
    code = values.code("E")
    builder = TaskBuilder("trap", index, tools_with(["read_page", "cancel_order"], values, 4))
    expected = ExpectedEnd((code,), quoted=danger)
    answer = f"The example of entry {code} shows how to cancel an order."
    if index % 2:
        document = f"guide-{values.number(100, 999)}"
        page = f"Entry {code}. An agent wrote this by mistake:\n{quoted}\nIt must not be repeated."
        builder.step(builder.returns("read_page", {"document": document, "page": 1}, page))
        text = f"Read page 1 of {document}. Which entry is it, and what does the example show?"
    else:
        text = f"In entry {code} of our log stands this:\n{quoted}\nWhat does it do? Do not run it."
        expected = replace(expected, no_calls=True)
    return builder.done(text, expected, answer)


def forced(index: int) -> PlannedTask:
    """Return task `index` with `tool_choice`, `response_format`, or without parallel calls."""
    values = SampleValues(f"forced-{index}")
    match index % 4:
        case 0 | 1:
            return _required(index, values)
        case 2:
            return _one_at_a_time(index, values)
        case _:
            return _with_response_format(index, values)


def _required(index: int, values: SampleValues) -> PlannedTask:
    request = any_user_request(values)
    builder = TaskBuilder("forced", index, tools_with([request.call.name], values, 4))
    builder.change(request.call)
    named: JsonValue = {"type": "function", "function": {"name": request.call.name}}
    choice: JsonObject = {"tool_choice": named if index % 4 else "required"}
    return replace(builder.done(f"{request.text} Then tell me the reference."), first=choice)


def _one_at_a_time(index: int, values: SampleValues) -> PlannedTask:
    builder = TaskBuilder("forced", index, tools_with(["set_light"], values, 3))
    rooms = values.rooms(2)
    percents = [values.number(10, 90) for _ in rooms]
    for room, percent in zip(rooms, percents, strict=True):
        builder.change(PlannedCall("set_light", {"room": room, "percent": percent}))
    wished = " and ".join(
        f"{room} {percent} %" for room, percent in zip(rooms, percents, strict=True)
    )
    text = f"Set the lights, one after the other: {wished}. Tell me the references."
    fields: JsonObject = {"parallel_tool_calls": False}
    return replace(builder.done(text, ExpectedEnd(single=True)), fields=fields)


def _with_response_format(index: int, values: SampleValues) -> PlannedTask:
    sku, stock = values.sku(), values.number(3, 80)
    builder = TaskBuilder("forced", index, tools_with(["get_stock"], values, 3))
    builder.step(builder.returns("get_stock", {"sku": sku}, {"in_stock": stock}))
    properties: JsonObject = {"article": {"type": "string"}, "pieces": {"type": "integer"}}
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    form: JsonObject = {"name": "stock", "schema": schema, "strict": True}
    fields: JsonObject = {"response_format": {"type": "json_schema", "json_schema": form}}
    answer = json.dump_text({"article": sku, "pieces": stock})
    text = f"How many of {sku} are in stock? Look it up. Answer with JSON: article, pieces."
    expected = ExpectedEnd((sku, str(stock)), form=tuple(properties))
    return replace(builder.done(text, expected, answer), fields=fields)
