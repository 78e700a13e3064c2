"""A conversation in every API dialect, and the responses parsed into the same form."""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object
from temper_evals.scenarios.worlds import objects_in
from tests.fakes.running_proxy import RunningProxy

PICTURE = "iVBORw0KGgo="
RICH: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "(?!x)[A-Z].*", "maxLength": 20000},
        "note": "string",
    },
    "required": ["city"],
}


@dataclass(frozen=True)
class Chat:
    """A conversation that can be sent in any dialect.

    `messages` are pairs of a role and a text. With `has_tools` the tool with `parameters` is
    offered, otherwise the `functions`. `effort` is the reasoning effort that the client requests.
    """

    messages: tuple[tuple[str, str], ...] = (("user", "How is the weather in Paris?"),)
    has_tools: bool = False
    parameters: JsonObject = field(default_factory=lambda: RICH)
    effort: str = ""
    has_picture: bool = False
    functions: tuple[JsonObject, ...] = ()

    def chat(self) -> JsonObject:
        return {"messages": self._write_messages("image_url"), **self._write_tools("function")} | (
            {"reasoning_effort": self.effort} if self.effort else {}
        )

    def responses(self) -> JsonObject:
        return {
            "input": self._write_messages("input_image"),
            "store": False,
            **self._write_tools("flat"),
        } | ({"reasoning": {"effort": self.effort}} if self.effort else {})

    def anthropic(self) -> JsonObject:
        body: JsonObject = {"messages": self._write_messages("image"), "max_tokens": 500}
        if system := [words for role, words in self.messages if role == "system"]:
            body["system"] = system[0]
        if self.effort:
            body["output_config"] = {"effort": self.effort}
        return {**body, **self._write_tools("anthropic")}

    def ollama(self) -> JsonObject:
        body: JsonObject = {
            "messages": self._write_messages("images"),
            **self._write_tools("function"),
        }
        return {**body, "think": self.effort} if self.effort else body

    def _write_messages(self, kind: str) -> list[JsonValue]:
        has_system_field = kind == "image"  # the Messages API
        messages: list[JsonValue] = [
            {"role": role, "content": words}
            for role, words in self.messages
            if not (has_system_field and role == "system")
        ]
        if self.has_picture:
            url = f"data:image/png;base64,{PICTURE}"
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
            pictures: dict[str, JsonObject] = {
                "image_url": {"type": "image_url", "image_url": {"url": url}},
                "input_image": {"type": "input_image", "image_url": url},
                "image": {"type": "image", "source": {**source}},
            }
            seen: JsonObject = {"content": "", "images": [PICTURE]}
            shown: JsonObject = seen if kind == "images" else {"content": [pictures[kind]]}
            messages.append({"role": "user", **shown})
        return messages

    def _write_tools(self, kind: str) -> JsonObject:
        weather: JsonObject = {"name": "get_weather", "description": "Tell the weather."}
        offered = [{**weather, "parameters": self.parameters}] if self.has_tools else self.functions
        tools: list[JsonValue] = []
        for tool in offered:
            if kind == "anthropic":
                schema = {"input_schema": tool["parameters"]}
                tools.append({name: tool[name] for name in tool if name != "parameters"} | schema)
            elif kind == "flat":
                tools.append({"type": "function", "strict": False, **tool})
            else:
                tools.append({"type": "function", "function": tool})
        return {"tools": tools} if tools else {}


@dataclass
class LanguageReply:
    """A response: the status, the text, and the calls."""

    status: int
    text: str = ""
    called: tuple[tuple[JsonValue, JsonValue], ...] = ()
    error: str = ""


PATHS: dict[str, tuple[str, Callable[[Chat], JsonObject]]] = {
    "chat": ("/v1/chat/completions", Chat.chat),
    "messages": ("/v1/messages", Chat.anthropic),
    "responses": ("/v1/responses", Chat.responses),
    "ollama": ("/api/chat", Chat.ollama),
}
EVERYWHERE = tuple((name, stream) for name in PATHS for stream in (False, True))


async def ask(proxy: RunningProxy, language: str, chat: Chat, *, stream: bool) -> LanguageReply:
    """Send the conversation in a dialect; the response is read from the body or from the events."""
    path, write = PATHS[language]
    body: JsonObject = {"model": "m", "stream": stream, **write(chat)}
    return await post(proxy, path, body)


async def post(proxy: RunningProxy, path: str, body: JsonObject) -> LanguageReply:
    answer = await proxy.client.post(path, content=json.dump(body))
    return read_answer(answer.status_code, answer.headers["content-type"], answer.content)


def read_answer(status: int, media_type: str, body: bytes) -> LanguageReply:
    """Parse a whole response or a stream of any dialect."""
    if media_type.startswith("application/json"):
        return _read(status, objects_in([json.parse(body)]))
    data = [line.removeprefix(b"data: ") for line in body.split(b"\n")]
    events = [json.parse(line) for line in data if line.startswith(b"{")]
    return _read(status, objects_in(events))


def _read(status: int, documents: list[JsonObject]) -> LanguageReply:
    """Parse the documents of a whole response, or the events of a stream."""
    got, collected = LanguageReply(status), Collected()
    for document in documents:
        if document.get("error"):
            got.error = f"{document['error']}"
        for choice in objects_in(document.get("choices")):
            collected.add_chat(as_object(choice.get("message") or choice.get("delta")))
        for block in [
            *objects_in(document.get("content")),
            *objects_in([document.get("content_block")]),
        ]:
            collected.add_block(block)
        if "done" in document and "message" in document:
            collected.add_line(as_object(document["message"]))
        delta = as_object(document.get("delta"))
        collected.text += f"{delta.get('text') or ''}"
        collected.extend(f"{delta.get('partial_json') or ''}")
        is_whole = document.get("object") == "response"
        if document.get("type") == "response.completed":
            document, is_whole = as_object(document["response"]), True
        for item in objects_in(document.get("output") if is_whole else None):
            collected.add_item(item)
    got.text = collected.text
    got.called = tuple((name, json.parse(arguments or "{}")) for name, arguments in collected.calls)
    return got


@dataclass
class Collected:
    """The text and the calls collected so far."""

    text: str = ""
    calls: list[tuple[JsonValue, str]] = field(default_factory=list)

    def extend(self, arguments: str) -> None:
        if arguments:
            name, before = self.calls.pop()
            self.calls.append((name, before + arguments))

    def add_chat(self, message: JsonObject) -> None:
        self.text += f"{message.get('content') or ''}"
        for call in objects_in(message.get("tool_calls")):
            function = as_object(call["function"])
            if "name" in function:
                self.calls.append((function["name"], ""))
            self.extend(f"{function.get('arguments') or ''}")

    def add_line(self, message: JsonObject) -> None:
        self.text += f"{message['content']}"
        for call in objects_in(message.get("tool_calls")):
            function = as_object(call["function"])
            self.calls.append((function["name"], json.dump_text(function["arguments"])))

    def add_block(self, block: JsonObject) -> None:
        self.text += f"{block.get('text') or ''}"
        if block.get("type") == "tool_use":
            given = block.get("input")
            self.calls.append((block["name"], json.dump_text(given) if given else ""))

    def add_item(self, item: JsonObject) -> None:
        if item["type"] == "function_call":
            self.calls.append((item["name"], f"{item['arguments']}"))
        content = item.get("content") if item["type"] == "message" else None
        for part in objects_in(content):
            self.text += f"{part.get('text') or ''}"
