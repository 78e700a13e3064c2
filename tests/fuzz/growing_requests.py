"""Requests with one part of any length: each list-like part of each dialect.

Every element differs from the others, so that no cache applies.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.histories import said

Growing: TypeAlias = Callable[[int], JsonObject]

LOOK: JsonObject = {"type": "object", "properties": {"at": {"type": "string"}}}


def _pairs(count: int, make: Callable[[int], tuple[JsonValue, ...]]) -> list[JsonValue]:
    return [*chain.from_iterable(map(make, range(count)))]


def _user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def _function(number: int, **members: JsonValue) -> JsonObject:
    return {"name": f"look_{number}", "description": f"Look {number}.", **members}


def _chat_tool(number: int, parameters: JsonObject = LOOK) -> JsonObject:
    return {"type": "function", "function": _function(number, parameters=parameters)}


def _chat_call(number: int, arguments: str = '{"at":"x"}') -> JsonObject:
    function: JsonObject = {"name": "look_0", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _chat_result(number: int, text: str = "done") -> JsonObject:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{text} {number}"}


def _chat(*messages: JsonValue, **members: JsonValue) -> JsonObject:
    return {"model": "m", "messages": [_user("Hi"), *messages], "tools": [_chat_tool(0)], **members}


def _made(*calls: JsonValue, text: str | None = None) -> JsonObject:
    return {"role": "assistant", "content": text, "tool_calls": [*calls]}


def _properties(count: int) -> JsonObject:
    return {f"at_{number}": {"type": "string"} for number in range(count)}


def _nested(depth: int) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    for _ in range(min(depth, 100)):
        schema = {"type": "object", "properties": {"at": schema}}
    return schema


def _schema(**members: JsonValue) -> JsonObject:
    return {"type": "object", **members}


def _chain(count: int) -> JsonObject:
    links: JsonObject = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)}
    return {"type": "object", "$defs": links}


CHAT: Mapping[str, Growing] = {
    "messages": lambda n: _chat(*[_user(f"Hi {i}") for i in range(n)]),
    "system messages": lambda n: _chat(*[said("system", f"Be {i}") for i in range(n)]),
    "developer messages": lambda n: _chat(*[said("developer", f"Be {i}") for i in range(n)]),
    "answers": lambda n: _chat(*[said("assistant", f"So {i}") for i in range(n)], _user("Go on")),
    "rounds": lambda n: _chat(*_pairs(n, lambda i: (_made(_chat_call(i)), _chat_result(i)))),
    "equal rounds": lambda n: _chat(*_pairs(n, lambda _: (_made(_chat_call(0)), _chat_result(0)))),
    "failed rounds": lambda n: _chat(
        *_pairs(n, lambda i: (_made(_chat_call(i)), _chat_result(i, "Error: no")))
    ),
    "calls in a message": lambda n: _chat(
        _made(*map(_chat_call, range(n))), *map(_chat_result, range(n))
    ),
    "calls without ids": lambda n: _chat(
        _made(*[{**_chat_call(i), "id": ""} for i in range(n)]),
        *[{**_chat_result(i), "tool_call_id": ""} for i in range(n)],
    ),
    "calls of one id": lambda n: _chat(
        _made(*[_chat_call(0) for _ in range(n)]), *[_chat_result(0) for _ in range(n)]
    ),
    "calls without results": lambda n: _chat(_made(*map(_chat_call, range(n)))),
    "results without calls": lambda n: _chat(*map(_chat_result, range(n))),
    "broken calls": lambda n: _chat(
        _made(*[_chat_call(i, '{"at":') for i in range(n)]), *map(_chat_result, range(n))
    ),
    "texts": lambda n: _chat(
        {"role": "user", "content": [{"type": "text", "text": f"Hi {i}"} for i in range(n)]}
    ),
    "pictures": lambda n: _chat(
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,QUJD{i}"}}
                for i in range(n)
            ],
        }
    ),
    "tools": lambda n: _chat(tools=[_chat_tool(i) for i in range(n)]),
    "allowed tools": lambda n: _chat(
        tools=[_chat_tool(i) for i in range(n)],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [
                    {"type": "function", "function": {"name": f"look_{i}"}} for i in range(n)
                ],
            },
        },
    ),
    "properties of a tool": lambda n: _chat(
        tools=[_chat_tool(0, _schema(properties=_properties(n)))]
    ),
    "required properties": lambda n: _chat(
        tools=[_chat_tool(0, _schema(properties=_properties(n), required=[*_properties(n)]))]
    ),
    "words of a tool": lambda n: _chat(
        tools=[_chat_tool(0, _schema(properties={"at": {"enum": [f"x{i}" for i in range(n)]}}))]
    ),
    "branches of a tool": lambda n: _chat(
        tools=[_chat_tool(0, _schema(anyOf=[{"required": [f"x{i}"]} for i in range(n)]))]
    ),
    "definitions of a tool": lambda n: _chat(tools=[_chat_tool(0, _chain(n))]),
    "levels of a tool": lambda n: _chat(tools=[_chat_tool(0, _nested(n))]),
    "stop strings": lambda n: _chat(stop=[f"x{i}" for i in range(n)]),
    "biases": lambda n: _chat(logit_bias={f"{i}": 1 for i in range(n)}),
    "members of a message": lambda n: _chat({**_user("Hi"), **{f"x{i}": 1 for i in range(n)}}),
    "metadata": lambda n: _chat(metadata={f"x{i}": "y" for i in range(n)}),
    "required steps": lambda n: _chat(
        tools=[_chat_tool(i) for i in range(n)],
        temper={"workflow": {"required_steps": [f"look_{i}" for i in range(n)]}},
    ),
    "prerequisites": lambda n: _chat(
        tools=[_chat_tool(i) for i in range(n)],
        temper={
            "workflow": {
                "prerequisites": [{"tool": f"look_{i}", "needs": "look_0"} for i in range(1, n)]
            }
        },
    ),
    "properties of an answer": lambda n: _chat(
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": _schema(properties=_properties(n))},
        }
    ),
}


def _item(kind: str, **members: JsonValue) -> JsonObject:
    return {"type": kind, **members}


def _block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _use(number: int) -> JsonObject:
    return {"type": "tool_use", "id": f"call_{number}", "name": "look_0", "input": {"at": "x"}}


def _tool_result(number: int) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"done {number}"}


def _messages_tool(number: int, **members: JsonValue) -> JsonObject:
    return _function(number, input_schema=LOOK, **members)


def _messages(*messages: JsonValue, **members: JsonValue) -> JsonObject:
    tools: list[JsonValue] = [_messages_tool(0)]
    whole = [_user("Hi"), *messages]
    return {"model": "m", "max_tokens": 9, "messages": whole, "tools": tools, **members}


def _says(role: str, *blocks: JsonValue) -> JsonObject:
    return {"role": role, "content": [*blocks]}


MESSAGES: Mapping[str, Growing] = {
    "messages": lambda n: _messages(*[_user(f"Hi {i}") for i in range(n)]),
    "system blocks": lambda n: _messages(system=[_block(f"Be {i}") for i in range(n)]),
    "system messages": lambda n: _messages(*[said("system", f"Be {i}") for i in range(n)]),
    "rounds": lambda n: _messages(
        *_pairs(n, lambda i: (_says("assistant", _use(i)), _says("user", _tool_result(i))))
    ),
    "calls and results": lambda n: _messages(
        _says("assistant", *map(_use, range(n))), _says("user", *map(_tool_result, range(n)))
    ),
    "texts": lambda n: _messages(_says("user", *[_block(f"Hi {i}") for i in range(n)])),
    "pictures": lambda n: _messages(
        _says(
            "user",
            *[
                _item("image", source=_item("base64", media_type="image/png", data=f"QU{i}"))
                for i in range(n)
            ],
        )
    ),
    "thoughts": lambda n: _messages(
        _says(
            "assistant",
            *[_item("thinking", thinking=f"Hm {i}", signature="") for i in range(n)],
            _block("So"),
        ),
        _user("Go on"),
    ),
    "texts of a result": lambda n: _messages(
        _says("assistant", _use(0)),
        _says("user", {**_tool_result(0), "content": [_block(f"done {i}") for i in range(n)]}),
    ),
    "unknown blocks": lambda n: _messages(
        _says("user", _block("Hi"), *[_item(f"odd_{i}") for i in range(n)])
    ),
    "tools": lambda n: _messages(tools=[_messages_tool(i) for i in range(n)]),
    "deferred tools": lambda n: _messages(
        tools=[_messages_tool(i, defer_loading=i > 0) for i in range(n)]
    ),
    "tools that come and go": lambda n: _messages(
        *_pairs(
            n,
            lambda i: (
                _says(
                    "system",
                    {
                        "type": ("tool_addition", "tool_removal")[i % 2],
                        "tool": {"type": "tool_reference", "name": "look_0"},
                    },
                ),
            ),
        )
    ),
    "stop strings": lambda n: _messages(stop_sequences=[f"x{i}" for i in range(n)]),
}


def _call_item(number: int) -> JsonObject:
    return _item("function_call", call_id=f"c{number}", name="look_0", arguments='{"at":"x"}')


def _output_item(number: int) -> JsonObject:
    return _item("function_call_output", call_id=f"c{number}", output=f"done {number}")


def _tool_item(number: int, **members: JsonValue) -> JsonObject:
    return _item("function", **_function(number, parameters=LOOK), **members)


def _responses(*items: JsonValue, **members: JsonValue) -> JsonObject:
    return {"model": "m", "input": [_user("Hi"), *items], "tools": [_tool_item(0)], **members}


def _summary(number: int) -> JsonObject:
    return _item("summary_text", text=f"Hm {number}")


RESPONSES: Mapping[str, Growing] = {
    "messages": lambda n: _responses(*[_user(f"Hi {i}") for i in range(n)]),
    "answers": lambda n: _responses(
        *[said("assistant", f"So {i}") for i in range(n)], _user("Go on")
    ),
    "system items": lambda n: _responses(*[said("system", f"Be {i}") for i in range(n)]),
    "system items at the start": lambda n: {
        **_responses(),
        "input": [*[said("system", f"Be {i}") for i in range(n)], _user("Hi")],
    },
    "thoughts": lambda n: _responses(
        *[_item("reasoning", summary=[_summary(i)]) for i in range(n)]
    ),
    "empty thoughts": lambda n: _responses(
        *[_item("reasoning", summary=[], id=f"rs_{i}") for i in range(n)]
    ),
    "thoughts and calls": lambda n: _responses(
        *_pairs(n, lambda i: (_item("reasoning", summary=[_summary(i)]), _call_item(i)))
    ),
    "summaries of a thought": lambda n: _responses(
        _item("reasoning", summary=[*map(_summary, range(n))]), _user("Go on")
    ),
    "calls": lambda n: _responses(*map(_call_item, range(n))),
    "calls, then results": lambda n: _responses(
        *map(_call_item, range(n)), *map(_output_item, range(n))
    ),
    "rounds": lambda n: _responses(*_pairs(n, lambda i: (_call_item(i), _output_item(i)))),
    "shell calls": lambda n: _responses(
        *_pairs(
            n,
            lambda i: (
                _item("shell_call", call_id=f"c{i}", action={"commands": ["ls"]}),
                _item("shell_call_output", call_id=f"c{i}", output=[{"stdout": f"{i}"}]),
            ),
        ),
        tools=[_item("shell", environment={"type": "local"})],
    ),
    "commands of a shell call": lambda n: _responses(
        _item("shell_call", call_id="c", action={"commands": [f"ls {i}" for i in range(n)]}),
        _item("shell_call_output", call_id="c", output=[{"stdout": f"{i}"} for i in range(n)]),
    ),
    "items with ids": lambda n: _responses(
        *[_item("message", id=f"msg_{i}", **_user(f"Hi {i}")) for i in range(n)]
    ),
    "unknown items": lambda n: _responses(*[_item(f"odd_{i}") for i in range(n)]),
    "searches of others": lambda n: _responses(
        *[
            _item("file_search_call", id=f"fs_{i}", results=[{"filename": "a", "text": "b"}])
            for i in range(n)
        ],
        _user("Go on"),
    ),
    "results of a search": lambda n: _responses(
        _item("file_search_call", results=[{"filename": f"a{i}", "text": "b"} for i in range(n)]),
        _user("Go on"),
    ),
    "texts": lambda n: _responses(
        {"role": "user", "content": [_item("input_text", text=f"Hi {i}") for i in range(n)]}
    ),
    "pictures": lambda n: _responses(
        {
            "role": "user",
            "content": [
                _item("input_image", image_url=f"data:image/png;base64,QU{i}") for i in range(n)
            ],
        }
    ),
    "files": lambda n: _responses(
        {
            "role": "user",
            "content": [
                _item("input_file", filename=f"{i}.txt", file_data="data:text/plain;base64,QUJD")
                for i in range(n)
            ],
        }
    ),
    "texts of a result": lambda n: _responses(
        _call_item(0),
        {**_output_item(0), "output": [_item("input_text", text=f"{i}") for i in range(n)]},
    ),
    "tools": lambda n: _responses(tools=[_tool_item(i) for i in range(n)]),
    "custom tools": lambda n: _responses(
        tools=[_item("custom", name=f"look_{i}") for i in range(n)]
    ),
    "tools of others": lambda n: _responses(
        tools=[
            _tool_item(0),
            *[_item("web_search", search_context_size=f"{i}") for i in range(n)],
        ]
    ),
    "namespaces": lambda n: _responses(
        tools=[
            _item("namespace", name=f"space_{i}", description="Space.", tools=[_tool_item(0)])
            for i in range(n)
        ]
    ),
    "members of a namespace": lambda n: _responses(
        tools=[
            _item(
                "namespace", name="space", description="Space.", tools=[*map(_tool_item, range(n))]
            )
        ]
    ),
    "additional tools": lambda n: _responses(
        *[_item("additional_tools", tools=[_tool_item(i)]) for i in range(n)]
    ),
    "tools that were found": lambda n: _responses(
        *[_item("tool_search_output", call_id=f"c{i}", tools=[_tool_item(i)]) for i in range(n)]
    ),
    "allowed tools": lambda n: _responses(
        tools=[*map(_tool_item, range(n))],
        tool_choice={
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": f"look_{i}"} for i in range(n)],
        },
    ),
    "includes": lambda n: _responses(include=[f"x{i}" for i in range(n)]),
    "metadata": lambda n: _responses(metadata={f"x{i}": "y" for i in range(n)}),
}
