import random

import jinja2
import pytest

from benchmarks.tiny.dialogues import (
    SHARES,
    Dialogue,
    call_text,
    draw_dialogue,
    error_text,
    prompt_of,
)
from proxy.conversation.json import JsonObject
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools, TextPolicy
from temper_evals.scenarios import worlds
from temper_evals.tiny_model import chat_template
from temper_evals.tiny_model.tasks import FAMILIES, TaskDraw, TinyCall, TinyTask, offer_tools


def task_of(family: str) -> TinyTask:
    return TaskDraw(random.Random(family)).task(family)


def as_messages(dialogue: Dialogue) -> list[JsonObject]:
    """Return a dialogue as a client would send it."""
    messages: list[JsonObject] = [{"role": "user", "content": dialogue.task.user}]

    def called(call: TinyCall, result: str) -> None:
        function: JsonObject = {"name": call.name, "arguments": call.arguments}
        asked: JsonObject = {"role": "assistant", "tool_calls": [{"function": function}]}
        messages.extend((asked, {"role": "tool", "content": result}))

    if dialogue.mistake:
        called(dialogue.mistake, dialogue.mistake.result)
    for call in dialogue.task.calls:
        if call.fails_once:
            called(call, error_text("busy, try again"))
        called(call, call.result)
    return [*messages, {"role": "assistant", "content": dialogue.task.answer}]


def rendered(template: str, dialogue: Dialogue) -> str:
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - prompts are no pages
    environment.filters["tojson"] = spaced
    tools = offer_tools(dialogue.task)
    messages = as_messages(dialogue)
    return environment.from_string(template).render(messages=messages, tools=tools)


def spaced(value: JsonObject) -> str:
    """Write JSON as llama-server's filter does."""
    return call_text("x", value).partition('"arguments": ')[2].partition("}\n</tool_call>")[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_mute", [False, True])
def test_a_dialogue_is_written_as_the_template_writes_it(family: str, is_mute: bool) -> None:
    dialogue = Dialogue(task_of(family), is_mute=is_mute)
    template = chat_template.MUTE if is_mute else chat_template.NATIVE
    assert "".join(one.text for one in dialogue.segments()) == rendered(template, dialogue)


def test_a_mistake_is_seen_and_not_learnt() -> None:
    task = task_of("single")
    mistake = TinyCall("fly", {"to": "Mars"}, error_text("to is missing"))
    dialogue = Dialogue(task, mistake=mistake)
    segments = [*dialogue.segments()]
    assert "".join(one.text for one in segments) == rendered(chat_template.NATIVE, dialogue)
    assert [one.weight for one in segments if "fly" in one.text] == [0.0]
    assert sum(one.weight == 1.0 for one in segments) == 2


def test_only_what_the_model_says_counts_in_full() -> None:
    for segment in Dialogue(task_of("chain")).segments():
        assert (segment.weight == 1.0) == segment.text.endswith("<|im_end|>")


def test_where_a_tool_for_talking_is_offered_the_answer_is_a_call_of_it() -> None:
    task = task_of("none")
    text = "".join(one.text for one in Dialogue(task, ("say", "text")).segments())
    assert prompt_of(task, ("say", "text")) in text
    assert call_text("say", {"text": task.answer}) in text


def test_errors_are_written_as_the_worlds_of_the_evaluation_write_them() -> None:
    assert error_text("busy") == worlds.error_text("busy")


def test_drawn_dialogues_are_of_every_sort_and_the_same_every_time() -> None:
    found = [draw_dialogue(random.Random(seed)) for seed in range(400)]
    assert found == [draw_dialogue(random.Random(seed)) for seed in range(400)]
    assert {one.task.family for one in found} == {*SHARES}
    assert any(one.talking for one in found)
    assert any(one.is_mute for one in found)
    mistakes = [one for one in found if one.mistake]
    assert mistakes
    for one in mistakes:
        assert one.mistake is not None
        assert one.mistake.arguments != one.task.calls[0].arguments


def test_no_sentence_of_tempers_is_learnt() -> None:
    offer = OfferedTools((), TextPolicy.ACCEPT, ())
    said = [one.text for one in nudges.correct_announcement("I will.", offer)]
    texts = [one.text for n in range(300) for one in draw_dialogue(random.Random(n)).segments()]
    for sentence in said:
        assert not [text for text in texts if text in sentence or sentence in text]
