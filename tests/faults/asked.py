"""Requests that no proxy and no engine can object to: what is asked while something goes wrong."""

from proxy.conversation.json import JsonObject, JsonValue


def tool(name: str, *required: str, **properties: JsonValue) -> JsonValue:
    """Write a tool."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(required),
    }
    function: JsonObject = {"name": name, "description": f"{name}.", "parameters": parameters}
    return {"type": "function", "function": function}


WEATHER = tool("get_weather", "city", city={"type": "string"}, days={"type": "integer"})
TIME = tool("get_time")


def user(text: str) -> JsonObject:
    """Write what a user says."""
    return {"role": "user", "content": text}


def asks(**others: JsonValue) -> JsonObject:
    """Make a request with two tools; an argument adds or replaces a member."""
    question = user("How is the weather in Paris?")
    plain: JsonObject = {"model": "m", "messages": [question], "tools": [WEATHER, TIME]}
    return {**plain, **others}


def chats(**others: JsonValue) -> JsonObject:
    """Make a request without tools; an argument adds or replaces a member."""
    return {"model": "m", "messages": [user("Hi.")], **others}
