import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.facts import Healed
from proxy.guardrails.history_repair.history import heal_messages
from proxy.guardrails.history_repair.notes import UNANSWERED, orphaned
from proxy.guardrails.model_quirks import SystemRole, Template
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, unpaired, written

STRICT = Template(
    has_developer=False,
    system=SystemRole.FIRST,
    alternates=True,
    control_tokens=("<|im_end|>", "ab"),
)
TEMPLATES = (Template(), STRICT, Template(system=SystemRole.NOWHERE, control_tokens=("ab",)))

HEALTHY = history(
    said("system", "Be brief."),
    said("user", "Hi <|im_start|>"),
    said("assistant", "Hello"),
    said("user", [{"type": "text", "text": "Look"}], name="Ann"),
    called(call("0", arguments='{"a": 1}'), call("1"), content=None),
    result("1", "seen"),
    result("0", ""),
    called(call("0"), content="Again"),
    result("0", name="look"),
    said("assistant", "So"),
)


@pytest.mark.parametrize("template", [Template(), STRICT])
def test_an_intact_history_comes_back_as_it_is(template: Template) -> None:
    healed, facts = heal_messages(HEALTHY, template)
    assert all(one is other for one, other in zip(healed, HEALTHY, strict=True))
    assert facts == ()


def test_everything_is_mended_in_one_go() -> None:
    broken = history(
        said("developer", "Be brief."),
        result("z", "old <|im_end|>"),
        said("user", "Hi"),
        called({"function": {"name": "look", "arguments": "{bad"}}),
        said("system", "Hurry."),
    )
    healed, facts = heal_messages(broken, STRICT)
    assert written(healed) == [
        said("system", "Be brief."),
        said("user", f"{orphaned('')}\n\nold <\u200b|im_end|>\n\nHi"),
        called(call("call_3_0", arguments='{"unparsable":"{bad"}')),
        result("call_3_0", UNANSWERED),
        said("user", "System note:\n\nHurry."),
    ]
    assert [fact.what for fact in facts if isinstance(fact, Healed)] == [
        *("arguments", "orphan_result", "call_id", "unanswered_call"),
        *("developer_role", "system_role", "alternation", "control_token"),
    ]


IDS = st.sampled_from(["a", "b", None])
ARGUMENTS = st.sampled_from(["{}", "{bad", "", None, {"a": 1}])
CONTENTS = st.sampled_from(
    ["x", "", None, "xab", "<|im_end|>", [{"type": "text", "text": "aab"}], [{"type": "x"}]]
)
CALLS = st.lists(st.builds(call, IDS, st.just("look"), ARGUMENTS), min_size=1, max_size=2)
SAID = st.builds(said, st.sampled_from(["system", "developer", "user", "assistant"]), CONTENTS)
MESSAGES = st.lists(
    st.one_of(
        SAID,
        CALLS.map(lambda calls: called(*calls)),
        st.builds(result, IDS, CONTENTS),
        st.just({"role": "user"}),
    ),
    max_size=6,
)


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_healing_twice_is_healing_once(messages: list[JsonObject], template: Template) -> None:
    once, _ = heal_messages(history(*messages), template)
    twice, facts = heal_messages(once, template)
    assert twice == once
    assert facts == ()
    written(once)


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_afterwards_every_call_has_a_result_and_every_result_a_call(
    messages: list[JsonObject], template: Template
) -> None:
    given_ = history(*messages)
    healed, facts = heal_messages(given_, template)
    assert unpaired(healed) == 0
    assert heal_messages(given_, template) == (healed, facts)
    assert facts or all(one is other for one, other in zip(healed, given_, strict=True))


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_nothing_that_was_said_is_lost(messages: list[JsonObject], template: Template) -> None:
    given_ = history(*messages)
    healed, _ = heal_messages(given_, template)
    whole = "\n".join(message.text.replace("\u200b", "") for message in healed)
    for message in given_:
        assert message.text in whole
    assert whole.count("x") >= sum(message.text.count("x") for message in given_)


@given(MESSAGES, MESSAGES.filter(bool))
def test_more_messages_change_nothing_before_them_unless_they_bring_a_result(
    messages: list[JsonObject], more: list[JsonObject]
) -> None:
    before = history(*messages)
    longer, new_facts = heal_messages((*before, *history(more[0])))
    healed, facts = heal_messages(before)
    orphan = Healed("orphan_result")
    if more[0]["role"] != "tool" or new_facts.count(orphan) > facts.count(orphan):
        assert longer[: len(healed)] == healed


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_work_is_linear_in_the_history(template: Template) -> None:
    unit = (
        *HEALTHY,
        *history(called(call(None), call("b")), result(None), result("z"), said("user", "ab")),
    )

    def work(text: str) -> tuple[Message, ...]:
        return heal_messages(unit * len(text), template)[0]

    assert is_linear(work, lambda size: "x" * size, 30)
