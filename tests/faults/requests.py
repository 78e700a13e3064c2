"""Requests that every proxy and engine accepts, sent while something fails."""

from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.histories import make_tool, said

WEATHER = make_tool("get_weather", "city", city={"type": "string"}, days={"type": "integer"})
TIME = make_tool("get_time")


def user(text: str) -> JsonObject:
    return said("user", text)


def asks(**others: JsonValue) -> JsonObject:
    """Make a request with two tools; an argument adds or replaces a member."""
    question = user("How is the weather in Paris?")
    plain: JsonObject = {"model": "m", "messages": [question], "tools": [WEATHER, TIME]}
    return {**plain, **others}


def chats(**others: JsonValue) -> JsonObject:
    """Make a request without tools; an argument adds or replaces a member."""
    return {"model": "m", "messages": [user("Hi.")], **others}
