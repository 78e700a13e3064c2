"""Builds an agent's request with tools; the mock backend sends the chosen reply. No I/O."""

from benchmarks.healthy.material import TOOLS
from benchmarks.healthy.replies import ReplyChoice
from proxy.conversation import json
from proxy.conversation.json import JsonObject


def body_of(choice: ReplyChoice) -> bytes:
    """Return the body of the request; every second request contains the result of a call."""
    call: JsonObject = {"name": "read_file", "arguments": '{"path":"README.md"}'}
    history: tuple[JsonObject, ...] = (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_before", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_before", "content": "# A project\n\nIt works.\n"},
    )
    body: JsonObject = {
        "model": "mock",
        "messages": [
            {"role": "system", "content": "You are a careful assistant."},
            {
                "role": "user",
                "content": f"What is to be said of number {choice.number}? {choice.mark}",
            },
            *(history if choice.number % 2 else ()),
        ],
        "tools": [*TOOLS],
        "stream": choice.is_streamed,
        "temperature": 0.2,
    }
    if choice.is_streamed:
        body["stream_options"] = {"include_usage": True}
    return json.dump(body)
