"""Tests that each function changes only refused messages, in the same way in every request."""

from collections.abc import Callable

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Messages
from proxy.dialects.openai_chat.decode import decode_request
from proxy.guardrails.history_repair import refused_forms

IMAGE: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
NOTE: JsonObject = {"type": "text", "text": "[An image that this model cannot read.]"}
USER: JsonObject = {"role": "user", "content": "Look"}
SHOWN: JsonObject = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}
HIDDEN: JsonObject = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, NOTE]}
DONE: JsonObject = {"role": "assistant", "content": "Done."}
OK: JsonObject = {"role": "assistant", "content": "OK."}


def with_call(call_id: str = "call_1", content: str = "", **others: JsonValue) -> JsonObject:
    function: JsonObject = {"name": "look", "arguments": "{}"}
    call: JsonObject = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call], **others}


def result(content: JsonValue = "blue", call_id: str = "call_1") -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def image_message(call_id: str) -> JsonObject:
    text = f"Image from the result of the tool call {call_id}:"
    return {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}


Rewrite = Callable[[Messages], Messages]

CASES: dict[str, tuple[Rewrite, list[JsonObject], list[JsonObject]]] = {
    "a user after a result": (
        refused_forms.acknowledge_results,
        [USER, with_call(), result(), USER],
        [USER, with_call(), result(), OK, USER],
    ),
    "reasoning next to text": (
        refused_forms.think_instead,
        [USER, with_call(content="I look.", reasoning_content="Which?"), result(), DONE],
        [USER, with_call(reasoning_content="Which?\n\nI look."), result(), DONE],
    ),
    "reasoning without text": (
        refused_forms.think_instead,
        [USER, with_call(reasoning="Which?"), {**DONE, "reasoning": "So."}],
        [USER, with_call(reasoning="Which?"), {**DONE, "reasoning": "So."}],
    ),
    "calls without reasoning": (
        refused_forms.add_thoughts,
        [USER, with_call(), result(), with_call(thinking="Hm."), DONE],
        [
            USER, with_call(reasoning_content=" "), result(),
            with_call(thinking="Hm.", reasoning_content="Hm."), DONE,
        ],
    ),
    "empty answers": (
        refused_forms.fill_empty_answers,
        [USER, {"role": "assistant", "content": "", "reasoning_content": "Hm."}, with_call(), DONE],
        [
            USER,
            {"role": "assistant", "content": "(no answer)", "reasoning_content": "Hm."},
            with_call(),
            DONE,
        ],
    ),
    "images of earlier turns and of tools": (
        refused_forms.hide_pictures,
        [SHOWN, with_call(), result([IMAGE]), DONE, SHOWN],
        [HIDDEN, with_call(), result([NOTE]), DONE, SHOWN],
    ),
    "images in results": (
        refused_forms.move_pictures,
        [SHOWN, with_call(), result([IMAGE]), result([{"type": "text", "text": "b"}], "c2"), USER],
        [
            SHOWN, with_call(), result("The image is in the next message."), result("b", "c2"),
            image_message("call_1"), USER,
        ],
    ),
    "an image in the last result": (
        refused_forms.move_pictures,
        [USER, with_call(), result([{"type": "text", "text": "a"}, IMAGE])],
        [USER, with_call(), result("a"), image_message("call_1")],
    ),
}  # fmt: skip


def apply(rewrite: Rewrite, messages: list[JsonObject]) -> list[JsonValue]:
    request = decode_request(json.dump({"messages": [*messages]}))
    return [json.parse(message.source) for message in rewrite(request.messages)]


@pytest.mark.parametrize("name", CASES)
def test_a_refused_message_is_rewritten(name: str) -> None:
    rewrite, messages, expected = CASES[name]
    assert apply(rewrite, messages) == expected


@pytest.mark.parametrize("name", CASES)
def test_appending_a_message_does_not_change_how_earlier_messages_are_rewritten(name: str) -> None:
    rewrite, messages, expected = CASES[name]
    sent = apply(rewrite, [*messages, DONE])
    # `hide_pictures` keeps a new image, for which a backend without vision refuses the request.
    # No earlier prompt that the backend accepted can therefore contain this image.
    if rewrite is not refused_forms.hide_pictures:
        assert sent[: len(expected)] == expected


def test_call_ids_are_replaced_by_nine_ascii_letters_and_digits() -> None:
    sent = apply(refused_forms.shorten_ids, [USER, with_call(), result(), with_call("abcDEF123")])
    called, answer, unchanged = sent[1:]
    assert isinstance(answer, dict)
    short = answer["tool_call_id"]
    assert isinstance(short, str)
    assert (len(short), short.isalnum(), short.isascii()) == (9, True, True)
    assert called == with_call(short)
    assert unchanged == with_call("abcDEF123")


def test_messages_that_need_no_rewriting_keep_their_bytes() -> None:
    payloads = (
        b'{"messages":[{ "role":"user","content" : "Hi"},{"role":"assistant","content":"a" }]}'
    )
    messages = decode_request(payloads).messages
    for rewrite in (*(case[0] for case in CASES.values()), refused_forms.shorten_ids):
        assert rewrite(messages) == messages


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([{"role": "user", "content": 'He said "image_url".'}], None),
        ([{"role": "user", "content": "Hi", "note": {"image_url": 1}}], None),
        ([USER, SHOWN], "messages.1.content.1"),
        ([SHOWN, DONE, USER], None),
        ([SHOWN, DONE, SHOWN], "messages.2.content.1"),
        ([USER, with_call(), result([IMAGE])], None),
    ],
)
def test_find_new_picture_finds_only_an_image_in_the_last_user_message(
    messages: list[JsonObject], field: str | None
) -> None:
    request = decode_request(json.dump({"messages": [*messages]}))
    assert refused_forms.find_new_picture(request.messages) == field
