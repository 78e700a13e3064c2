import pytest

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidRequest
from proxy.tools.transcript import Conversation

PICTURE = "data:image/png;base64,AAAA"
CALL: JsonObject = {
    "id": "a",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
}
TALK: list[JsonObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "21 degrees"},
    {"role": "assistant", "content": "It is warm."},
]
CONTENTS: list[JsonObject] = [
    {"role": "user", "parts": [{"text": "How is the weather?"}]},
    {
        "role": "model",
        "parts": [
            {"text": "Let me see."},
            {"functionCall": {"id": "a", "name": "get_weather", "args": {"city": "Oslo"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "a",
                    "name": "get_weather",
                    "response": {"output": "21 degrees"},
                }
            }
        ],
    },
    {"role": "model", "parts": [{"text": "It is warm."}]},
]


def test_a_conversation_is_converted_to_openai_anthropic_and_gemini() -> None:
    talk = Conversation.of(TALK)
    assert talk.to("openai") == {"messages": TALK}
    anthropic = talk.to("anthropic")
    assert anthropic["system"] == [{"type": "text", "text": "Be brief."}]
    messages = anthropic["messages"]
    assert isinstance(messages, list)
    assert messages[1] == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Oslo"}},
        ],
    }
    assert talk.to("gemini") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": CONTENTS,
    }


def test_a_conversation_is_read_from_anthropic_and_gemini() -> None:
    conversation = Conversation.of(TALK[1:])
    messages = conversation.to("anthropic")["messages"]
    assert isinstance(messages, list)
    read = [message for message in messages if isinstance(message, dict)]
    for talk in (Conversation.of(read, "anthropic"), Conversation.of(CONTENTS, "gemini")):
        assert [message.type for message in talk.history] == ["prompt", "calls", "result", "answer"]
        assert [message.text for message in talk.history] == [
            message.text for message in conversation.history
        ]
        assert talk.history[1].calls == conversation.history[1].calls
        assert talk.history[2].tool_call_id == "a"
        assert talk.to("gemini")["contents"] == CONTENTS


def test_calls_of_gemini_without_ids_are_matched_in_order() -> None:
    contents: list[JsonObject] = [
        {"role": "user", "parts": [{"text": "Go"}]},
        {
            "role": "model",
            "parts": [
                {"thought": True, "text": "Hm."},
                {"functionCall": {"name": "f"}},
                {"functionCall": {"name": "f", "args": {"x": 1}}},
            ],
        },
        {
            "parts": [
                {"functionResponse": {"name": "f", "response": {"a": 1, "b": 2}}},
                {"functionResponse": {"name": "f", "response": {"error": "no"}}},
            ],
        },
    ]
    _, calling, first, second = Conversation.of(contents, "gemini").history
    assert calling.text == ""
    assert [call.id for call in calling.calls] == ["call_1", "call_2"]
    assert [call.arguments for call in calling.calls] == ["{}", '{"x":1}']
    assert (first.tool_call_id, first.text) == ("call_1", '{"a":1,"b":2}')
    assert (second.tool_call_id, second.text) == ("call_2", '{"error":"no"}')


def test_failed_results_and_images_are_converted_to_gemini_and_audio_is_refused() -> None:
    parts: JsonObject = {"role": "user", "content": [
        {"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": PICTURE}}
    ]}  # fmt: skip
    failed: JsonObject = {"role": "tool", "tool_call_id": "a", "content": "Error: no such city"}
    talk = Conversation.of([parts, TALK[2], failed])
    contents = talk.to("gemini")["contents"]
    assert isinstance(contents, list)
    assert contents[0] == {
        "role": "user",
        "parts": [{"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
    }
    response = {"id": "a", "name": "get_weather", "response": {"error": "Error: no such city"}}
    assert contents[2] == {"role": "user", "parts": [{"functionResponse": response}]}
    again = Conversation.of(
        [content for content in contents if isinstance(content, dict)], "gemini"
    )
    assert b"image_url" in again.history[0].source
    sound: JsonObject = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    with pytest.raises(InvalidRequest, match="input_audio"):
        Conversation.of([{"role": "user", "content": [sound]}]).to("gemini")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"role": "system", "parts": []}, "contents.0.role"),
        ({"parts": "Hi"}, "contents.0.parts"),
        ({"parts": [{"fileData": {}}]}, "fileData"),
        ({"parts": [{"functionCall": {"name": "f"}}]}, "functionCall"),
        ({"parts": [{"functionResponse": {"name": "f"}}]}, "no earlier call of 'f'"),
    ],
)
def test_the_error_for_an_unreadable_gemini_content_names_its_field(
    content: JsonObject, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        Conversation.of([content], "gemini")


def test_the_tokens_of_a_conversation_are_estimated() -> None:
    talk = Conversation.of(TALK)
    assert 10 < talk.estimate_tokens() < 100
    assert Conversation().estimate_tokens() == 0
