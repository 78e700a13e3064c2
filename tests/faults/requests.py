"""Requests that every proxy and engine accepts."""

from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.histories import make_tool, said

WEATHER = make_tool("get_weather", "city", city={"type": "string"}, days={"type": "integer"})
TIME = make_tool("get_time")


def user(text: str) -> JsonObject:
    return said("user", text)


def asks(**others: JsonValue) -> JsonObject:
    """Return a request with two tools; arguments add or replace members."""
    question = user("How is the weather in Paris?")
    plain: JsonObject = {"model": "m", "messages": [question], "tools": [WEATHER, TIME]}
    return {**plain, **others}


def chats(**others: JsonValue) -> JsonObject:
    """Return a request without tools; arguments add or replace members."""
    return {"model": "m", "messages": [user("Hi.")], **others}
