"""Clients of the four dialects that send back the reasoning of earlier answers, or drop it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import cast

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.worlds import objects_in

_NAMES = ("reasoning_content", "thinking", "reasoning")
_PARAMETERS: JsonObject = {"type": "object", "properties": {"path": {"type": "string"}}}


class ReasoningClient(ABC):
    """A client with its history; without `keeps`, it removes all reasoning from the history."""

    path: str

    def __init__(self, http: httpx.AsyncClient, *, keeps: bool, streams: bool) -> None:
        self.http, self.keeps, self.streams = http, keeps, streams
        self.history: list[JsonValue] = []
        self.headers: dict[str, str] = {}

    @abstractmethod
    def body(self) -> JsonObject:
        """The request of the next turn."""

    @abstractmethod
    def results(self, text: str) -> list[JsonValue]:
        """The messages with `text` as the result of each call of the last answer."""

    @abstractmethod
    def read(self, answer: JsonObject) -> list[JsonObject]:
        """Return the messages of a whole answer."""

    @abstractmethod
    def read_stream(self, events: list[JsonObject]) -> list[JsonObject]:
        """Return the messages of a streamed answer."""

    def without_reasoning(self, message: JsonObject) -> list[JsonValue]:
        return [{name: value for name, value in message.items() if name not in _NAMES}]

    async def say(self, text: str) -> list[JsonObject]:
        """Send a message of the user; return the messages of the answer."""
        self.history.append({"role": "user", "content": text})
        return await self.send()

    async def answer_calls(self, text: str = "done") -> list[JsonObject]:
        self.history += self.results(text)
        return await self.send()

    async def send(self) -> list[JsonObject]:
        body: JsonObject = {"model": "m", "stream": self.streams, **self.body()}
        response = await self.http.post(self.path, json=body, headers=self.headers)
        assert response.status_code == 200, response.text
        if self.streams:
            lines = [line.removeprefix("data: ") for line in response.text.split("\n")]
            events = [cast("JsonObject", json.parse(line)) for line in lines if line[:1] == "{"]
            messages = self.read_stream(events)
        else:
            messages = self.read(cast("JsonObject", response.json()))
        for message in messages:
            self.history += [message] if self.keeps else self.without_reasoning(message)
        return messages


class ChatClient(ReasoningClient):
    path = "/v1/chat/completions"

    def body(self) -> JsonObject:
        tools: list[JsonValue] = [
            {"type": "function", "function": {"name": name, "parameters": _PARAMETERS}}
            for name in ("read", "list")
        ]
        return {"messages": self.history, "tools": tools}

    def results(self, text: str) -> list[JsonValue]:
        calls = objects_in(cast("JsonObject", self.history[-1]).get("tool_calls"))
        return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in calls]

    def read(self, answer: JsonObject) -> list[JsonObject]:
        return [cast("JsonObject", objects_in(answer["choices"])[0]["message"])]

    def read_stream(self, events: list[JsonObject]) -> list[JsonObject]:
        message: JsonObject = {"role": "assistant", "content": ""}
        calls: list[JsonObject] = []
        for choice in (choice for event in events for choice in objects_in(event["choices"])):
            delta = cast("JsonObject", choice["delta"])
            for name in ("content", "reasoning_content"):
                if delta.get(name):
                    message[name] = f"{message.get(name, '')}{delta[name]}"
            for piece in objects_in(delta.get("tool_calls")):
                _add_call(calls, piece)
        return [{**message, "tool_calls": [*calls]} if calls else message]


def _add_call(calls: list[JsonObject], piece: JsonObject) -> None:
    if piece["index"] == len(calls):
        calls.append({name: value for name, value in piece.items() if name != "index"})
    else:
        function = cast("JsonObject", calls[-1]["function"])
        more = cast("JsonObject", piece["function"])
        function["arguments"] = f"{function['arguments']}{more['arguments']}"


class MessagesClient(ReasoningClient):
    path = "/v1/messages"

    def body(self) -> JsonObject:
        tools: list[JsonValue] = [
            {"name": name, "input_schema": _PARAMETERS} for name in ("read", "list")
        ]
        return {"messages": self.history, "tools": tools, "max_tokens": 500}

    def results(self, text: str) -> list[JsonValue]:
        blocks = objects_in(cast("JsonObject", self.history[-1])["content"])
        content: list[JsonValue] = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        return [{"role": "user", "content": content}]

    def read(self, answer: JsonObject) -> list[JsonObject]:
        return [{"role": "assistant", "content": answer["content"]}]

    def read_stream(self, events: list[JsonObject]) -> list[JsonObject]:
        blocks: list[JsonObject] = []
        arguments = ""
        for event in events:
            delta = cast("JsonObject", event.get("delta") or {})
            match event["type"]:
                case "content_block_start":
                    blocks.append(cast("JsonObject", event["content_block"]))
                    arguments = ""
                case "content_block_delta":
                    for name in ("text", "thinking", "signature"):
                        if name in delta:
                            blocks[-1][name] = f"{blocks[-1].get(name, '')}{delta[name]}"
                    arguments += f"{delta.get('partial_json', '')}"
                case "content_block_stop" if blocks[-1]["type"] == "tool_use":
                    blocks[-1]["input"] = json.parse(arguments or "{}")
                case _:
                    pass
        return [{"role": "assistant", "content": [*blocks]}]

    def without_reasoning(self, message: JsonObject) -> list[JsonValue]:
        blocks = objects_in(message["content"])
        return [{**message, "content": [part for part in blocks if part["type"] != "thinking"]}]


class ResponsesClient(ReasoningClient):
    path = "/v1/responses"

    def body(self) -> JsonObject:
        tools: list[JsonValue] = [
            {"type": "function", "name": name, "parameters": _PARAMETERS, "strict": False}
            for name in ("read", "list")
        ]
        return {"input": self.history, "tools": tools, "store": False}

    def results(self, text: str) -> list[JsonValue]:
        items = objects_in(self.history)
        answered = {item.get("call_id") for item in items if item["type"] == "function_call_output"}
        return [
            {"type": "function_call_output", "call_id": item["call_id"], "output": text}
            for item in items
            if item["type"] == "function_call" and item["call_id"] not in answered
        ]

    async def say(self, text: str) -> list[JsonObject]:
        self.history.append({"type": "message", "role": "user", "content": text})
        return await self.send()

    def read(self, answer: JsonObject) -> list[JsonObject]:
        return objects_in(answer["output"])

    def read_stream(self, events: list[JsonObject]) -> list[JsonObject]:
        last = next(event for event in events if event["type"] == "response.completed")
        return self.read(cast("JsonObject", last["response"]))

    def without_reasoning(self, message: JsonObject) -> list[JsonValue]:
        return [] if message["type"] == "reasoning" else [message]


class OllamaClient(ReasoningClient):
    path = "/api/chat"

    def body(self) -> JsonObject:
        tools: list[JsonValue] = [
            {"type": "function", "function": {"name": name, "parameters": _PARAMETERS}}
            for name in ("read", "list")
        ]
        return {"messages": self.history, "tools": tools, "think": True}

    def results(self, text: str) -> list[JsonValue]:
        calls = objects_in(cast("JsonObject", self.history[-1]).get("tool_calls"))
        functions = [cast("JsonObject", call["function"]) for call in calls]
        return [
            {"role": "tool", "tool_name": function["name"], "content": text}
            for function in functions
        ]

    def read(self, answer: JsonObject) -> list[JsonObject]:
        return [cast("JsonObject", answer["message"])]

    def read_stream(self, events: list[JsonObject]) -> list[JsonObject]:
        message: JsonObject = {"role": "assistant", "content": ""}
        calls: list[JsonValue] = []
        for piece in (cast("JsonObject", event["message"]) for event in events):
            for name in ("content", "thinking"):
                if piece.get(name):
                    message[name] = f"{message.get(name, '')}{piece[name]}"
            calls += objects_in(piece.get("tool_calls"))
        return [{**message, "tool_calls": calls} if calls else message]


CLIENTS: Mapping[str, type[ReasoningClient]] = {
    "chat": ChatClient,
    "messages": MessagesClient,
    "responses": ResponsesClient,
    "ollama": OllamaClient,
}
EVERYWHERE = tuple((name, streams) for name in CLIENTS for streams in (False, True))
