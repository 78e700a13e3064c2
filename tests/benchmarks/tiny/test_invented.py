import random
from functools import lru_cache

import jinja2
import pytest

from benchmarks.tiny.invented import WORDS, InventedTool, Invention
from benchmarks.tiny.invented_dialogues import SHARES, conversation_prompt, draw_conversation
from benchmarks.tiny.invented_tasks import FAMILIES, InventedDraw, InventedTask, spell
from benchmarks.tiny.invented_template import MUTE, NATIVE
from benchmarks.tiny.live import InventedScenario, invented_suite
from benchmarks.tiny.sizes import SIZES
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools, TextPolicy
from temper_evals.scenarios.scenario import ToolFailed
from temper_evals.scenarios.worlds import error_text, schema_of, validator_of

HELD_OUT = {thing for one in WORDS["held_out_domain"] for thing in one["things"]}


def tasks_of(family: str, *, held_out: bool = False, count: int = 20) -> list[InventedTask]:
    draw = InventedDraw(random.Random(family), held_out)
    return [draw.task(family) for _ in range(count)]


def leaves(value: JsonValue) -> list[str]:
    match value:
        case dict():
            return [leaf for one in value.values() for leaf in leaves(one)]
        case list():
            return [leaf for one in value for leaf in leaves(one)]
        case _:
            return [spell(value)]


ENVIRONMENT = jinja2.Environment(autoescape=False)  # noqa: S701 - prompts are no pages


@lru_cache
def compiled(template: str) -> jinja2.Template:
    return ENVIRONMENT.from_string(template)


def rendered(template: str, task: InventedTask) -> str:
    messages: list[JsonObject] = [{"role": "user", "content": task.user}]
    tools = [one.describe() for one in task.tools]
    return compiled(template).render(messages=messages, tools=tools)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_is_written_as_the_template_writes_it(family: str) -> None:
    for task in tasks_of(family):
        expected = conversation_prompt(task.tools, task.user)
        assert rendered(NATIVE, task) == rendered(MUTE, task) == expected


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_due_calls_fit_their_schemas_and_everything_in_them_was_said(
    family: str, *, held_out: bool
) -> None:
    for task in tasks_of(family, held_out=held_out):
        known = task.user
        for call in task.calls:
            schema = schema_of(tuple(one.describe() for one in task.tools), call.tool.name)
            assert schema is not None
            assert validator_of(schema).is_valid(call.arguments)
            assert all(leaf in known for leaf in leaves(call.arguments)), (task.user, call)
            known += call.result


def test_schemas_are_of_every_sort() -> None:
    tools = [Invention(random.Random(seed)).domain().tool() for seed in range(300)]
    kinds = {
        "enum" if one.choices else str(one.schema()["type"])
        for tool in tools
        for one in tool.fields
    }
    assert kinds == {"string", "integer", "number", "boolean", "array", "object", "enum"}
    assert len({tool.name for tool in tools}) > 250


def test_things_that_are_held_out_are_drawn_for_measuring_only() -> None:
    seen = {Invention(random.Random(seed)).domain().tool().thing for seed in range(500)}
    unseen = {Invention(random.Random(seed), held_out=True).domain().thing() for seed in range(99)}
    assert not seen & HELD_OUT
    assert unseen & HELD_OUT
    assert not seen & unseen


def test_conversations_are_the_same_every_time_and_only_what_is_right_is_learnt() -> None:
    assert {*SHARES} == {*FAMILIES}
    for seed in range(200):
        found = [*draw_conversation(random.Random(seed))]
        assert found == [*draw_conversation(random.Random(seed))]
        said = [one.text for one in found if one.weight == 1.0]
        assert said
        assert all(text.endswith("<|im_end|>") for text in said)
        assert not [text for text in said if text.startswith("Done.<")]


def test_no_sentence_of_tempers_is_learnt_by_the_larger_one() -> None:
    offer = OfferedTools((), TextPolicy.ACCEPT, ())
    said = [one.text for one in nudges.correct_announcement("I will.", offer)]
    texts = [one.text for n in range(300) for one in draw_conversation(random.Random(n))]
    for sentence in said:
        assert not [text for text in texts if sentence in text]
    assert not [text for text in texts if "DONE" in text]


def others_of(scenario: InventedScenario) -> list[InventedTool]:
    due = {one.tool.name for one in scenario.task.calls}
    return [one for one in scenario.task.tools if one.name not in due]


def play(scenario: InventedScenario, *, more: bool = False) -> tuple[bool, int]:
    """Make what is due, or more; returns whether that is right, and the damage."""
    world, said = scenario.world(), list[JsonObject]()
    for call in scenario.task.calls:
        for _ in range(len(call.errors) + bool(call.result)):
            try:
                result = world.call(call.tool.name, call.arguments)
            except ToolFailed as failure:
                result = error_text(str(failure))
            said.append({"role": "tool", "content": result})
    if more:
        for tool in others_of(scenario):
            values: JsonObject = {
                one.name: Invention(random.Random(1)).value(one) for one in tool.fields
            }
            with pytest.raises(ToolFailed):
                world.call(tool.name, values)
    said.append({"role": "assistant", "content": scenario.task.answer})
    judged = scenario.judge(world, said)
    return judged.right, judged.damage


def test_whoever_does_what_is_due_is_right_and_needless_changes_are_damage() -> None:
    suite = [one for one in invented_suite(2) if isinstance(one, InventedScenario)]
    assert len(suite) == 2 * 2 * len(FAMILIES)
    for scenario in suite:
        assert play(scenario) == (True, 0), scenario.name
        others = others_of(scenario)
        changing = sum(one.changes for one in others)
        is_right = not changing and (bool(scenario.task.calls) or not others)
        assert play(scenario, more=True) == (is_right, changing)


def test_a_size_without_a_tool_for_talking_never_shows_one() -> None:
    for name, expected in (("shipped", True), ("untalking", False)):
        texts = ["".join(s.text for s in SIZES[name].draw(random.Random(n))) for n in range(99)]
        assert any("respond(message" in one for one in texts) == expected
