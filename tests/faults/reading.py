"""Tolerant reading of the responses of peers (other proxies).

`tests.fakes.answers` requires many details that clients rely on. A peer that lacks such a detail
should not fail a row about another fault.
"""

from typing import cast

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.answers import Answer


def read_loosely(response: httpx.Response) -> Answer:
    """Read a complete response, streamed or not; tolerate missing or additional members."""
    answer = Answer(response.status_code, response.headers, response.content)
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        for line in response.text.splitlines():
            _read_line(answer, line)
    else:
        _read_document(answer, _parsed(response.text))
        answer.is_done = answer.error is None
    return answer


def _read_line(answer: Answer, line: str) -> None:
    if not line.startswith("data:"):
        return
    data = line.removeprefix("data:").strip()
    if data == "[DONE]":
        answer.is_done = True
        return
    document = _parsed(data)
    if isinstance(document, dict):
        answer.chunks.append(document)
    _read_document(answer, document)


def _read_document(answer: Answer, document: JsonValue) -> None:
    if not isinstance(document, dict) or "error" in document or "detail" in document:
        answer.error = _error(document)
        return
    answer.usage = document.get("usage", answer.usage)
    for choice in cast("list[JsonObject]", document.get("choices") or []):
        answer.reason = choice.get("finish_reason") or answer.reason
        content = choice.get("message") or choice.get("delta") or {}
        _read_content(answer, cast("JsonObject", content))


def _read_content(answer: Answer, content: JsonObject) -> None:
    if isinstance(text := content.get("content"), str):
        answer.text = (answer.text or "") + text
    for position, call in enumerate(cast("list[JsonObject]", content.get("tool_calls") or [])):
        _read_call(answer, call, cast("int", call.get("index", position)))


def _read_call(answer: Answer, call: JsonObject, index: int) -> None:
    """Add a call, or a piece of one."""
    piece = cast("JsonObject", call.get("function") or {})
    if index >= len(answer.calls):
        answer.calls.append({"id": call.get("id"), "type": "function", "function": {**piece}})
        return
    function = cast("JsonObject", answer.calls[index]["function"])
    more = piece.get("arguments") or ""
    function["arguments"] = f"{function.get('arguments') or ''}{more}"


def _error(document: JsonValue) -> JsonObject:
    error = document.get("error", document) if isinstance(document, dict) else document
    return error if isinstance(error, dict) else {"message": f"{error}"}


def _parsed(text: str) -> JsonValue:
    try:
        return json.parse(text.encode())
    except ValueError:
        return text
