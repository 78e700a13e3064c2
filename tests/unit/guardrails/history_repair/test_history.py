import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, assistant_message, user_message
from proxy.conversation.tools import Tool
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.history import (
    SYSTEM_NOTE,
    fit_roles,
    heal_members,
    heal_messages,
    heal_tools,
    neutralize,
    replay_thoughts,
)
from proxy.guardrails.history_repair.pairing import UNANSWERED, introduce_orphan
from proxy.guardrails.model_quirks import Template
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, unpaired, written


def heal(message: JsonObject) -> tuple[Message, Message, list[Fact]]:
    (original,) = history(message)
    facts: list[Fact] = []
    return original, heal_members(original, facts), facts


@pytest.mark.parametrize(
    "message",
    [
        said("user", "{bad"),
        said("user", [{"type": "input_audio", "input_audio": {}}]),
        said("user", ""),
        result("a", ""),
        said("assistant", "Hello"),
        said("assistant", None, tool_calls=[]),
        said("assistant", None),
        {"role": "assistant", "tool_calls": []},
        {"role": "assistant", "tool_calls": None},
        called(call("a", arguments='{"a": 1}')),
        called(call("a"), call("b", arguments='{"type": "function"}'), content="So"),
    ],
)
def test_an_intact_message_is_unchanged(message: JsonObject) -> None:
    original, healed, facts = heal(message)
    assert healed is original
    assert facts == []


@pytest.mark.parametrize(
    ("arguments", "repaired"),
    [
        ("", "{}"),
        ("  ", "{}"),
        (None, "{}"),
        ("null", "{}"),
        (json.dump_text(json.dump_text(json.dump_text({"a": 1}))), '{"a":1}'),
        ('{"a', '{"unparsable":"{\\"a"}'),
        ({"type": "function", "arguments": "x"}, '{"type":"function","arguments":"x"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
    ],
)
def test_invalid_arguments_of_a_call_are_replaced_by_json_text(
    arguments: JsonValue, repaired: str
) -> None:
    _, healed, facts = heal(called(call("a"), call("b", arguments=arguments), content="So"))
    assert written([healed]) == [called(call("a"), call("b", arguments=repaired), content="So")]
    assert healed.calls[1].arguments == repaired
    assert facts == [Healed("arguments")]


def test_missing_arguments_become_an_empty_object() -> None:
    _, healed, _ = heal(called({"id": "a", "type": "function", "function": {"name": "look"}}))
    assert written([healed]) == [called(call("a"))]


def test_a_missing_type_of_a_call_is_added() -> None:
    function: JsonObject = {"name": "look", "arguments": '{"type": "function"}'}
    _, healed, facts = heal(called({"id": "a", "function": function}))
    assert written([healed]) == [called({"id": "a", "type": "function", "function": function})]
    assert facts == [Healed("type")]


@pytest.mark.parametrize("role", ["assistant", "user", "tool", "system"])
def test_missing_content_becomes_an_empty_string(role: str) -> None:
    _, healed, facts = heal({"role": role})
    assert written([healed]) == [said(role, "")]
    assert facts == [Healed("content")]


def test_null_content_of_a_user_becomes_an_empty_string() -> None:
    _, healed, facts = heal(said("user", None, name="Ann"))
    assert written([healed]) == [said("user", "", name="Ann")]
    assert facts == [Healed("content")]


def test_unrepaired_members_of_a_message_keep_their_bytes() -> None:
    source = b'{"role":"assistant","x":1.50,"tool_calls":[{"id":"a","function":{"name":"f"}}]}'
    (original,) = history(called(call("a", arguments="{bad")))
    message = Message("assistant", "", source, original.calls)
    assert b'"x":1.50' in heal_members(message, []).source


@pytest.mark.parametrize("call_", ["?", {"id": "a"}, {"function": None}])
def test_an_invalid_call_is_unchanged(call_: JsonValue) -> None:
    message = Message("assistant", "", json.dump(called(call_)))
    assert heal_members(message, []) is message


TOKENS = ("<|im_end|>", "<|im_start|>", "aba", "｜x｜", "")  # noqa: RUF001 - DeepSeek's bar
END, BROKEN = "<|im_end|>", "<\u200b|im_end|>"


def text(value: JsonValue) -> JsonValue:
    return {"type": "text", "text": value}


INTACT: list[JsonObject] = [
    said("user", "Hi", name="Ann"),
    said("user", [text("Hi"), {"type": "input_audio", "input_audio": {"data": END}}], name="Ann"),
    said("user", [text("<|im_"), text("end|>")]),
    said("assistant", END),
    said("system", END),
    called(call("a", END), content=END),
    result("a", BROKEN),
]
PLAYBOOK: list[tuple[JsonObject, JsonObject]] = [
    (said("user", f"a {END}{END}"), said("user", f"a {BROKEN}{BROKEN}")),
    (said("user", "ababa"), said("user", "a\u200bba\u200bba")),
    (result("a", f"x{END}"), result("a", f"x{BROKEN}")),
    (said("function", END, name=END), said("function", BROKEN, name=BROKEN)),
    (said("user", "Hi", name=END), said("user", "Hi", name=BROKEN)),
    (said("user", None, name=END), said("user", None, name=BROKEN)),
    (
        said("user", [text("Hi"), text(END), {"type": "other"}]),
        said("user", [text("Hi"), text(BROKEN), {"type": "other"}]),
    ),
]


def heal_tokens(*messages: Message) -> tuple[tuple[Message, ...], list[Fact]]:
    facts: list[Fact] = []
    return neutralize(messages, TOKENS, facts), facts


@pytest.mark.parametrize("message", INTACT)
def test_assistant_and_system_messages_and_messages_without_control_tokens_are_unchanged(
    message: JsonObject,
) -> None:
    (original,) = history(message)
    (healed,), facts = heal_tokens(original)
    assert healed is original
    assert facts == []


@pytest.mark.parametrize(("received", "expected"), PLAYBOOK)
def test_control_tokens_in_messages_are_split_with_zero_width_spaces(
    received: JsonObject, expected: JsonObject
) -> None:
    healed, facts = heal_tokens(*history(received))
    assert written(healed) == [expected]
    assert facts == [Healed("control_token")]


@pytest.mark.fault("F106")
def test_control_tokens_in_tools_are_escaped_and_other_tools_keep_their_bytes() -> None:
    source = json.dump(
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": f"Looks.{END}",
                "parameters": {"properties": {"a": {"description": f"{END}x", "enum": ["y"]}}},
            },
        }
    )
    plain = Tool("look", {}, b'{"type" : "function","function":{"name":"look"}}')
    (healed, unchanged), facts = heal_tools((Tool("look", {}, source), plain), (END,))
    assert END.encode() not in healed.source
    assert json.parse(healed.source) != json.parse(source)
    assert (unchanged, facts) == (plain, (Healed("control_token"),))


def test_a_control_token_written_with_json_escapes_is_also_split() -> None:
    (plain,) = history(said("user", END))
    source = b'{"role":"user","content":"\\u003c\\u007cim_end|>"}'
    (healed,), _ = heal_tokens(Message("user", END, source))
    assert healed == heal_tokens(plain)[0][0]


def test_a_part_without_a_control_token_keeps_its_bytes() -> None:
    source = b'{"role":"user","content":[{"type" : "text","text":"Hi"},{"text":"<|im_end|>"}]}'
    (healed,), _ = heal_tokens(Message("user", f"Hi\n{END}", source))
    assert b'{"type" : "text","text":"Hi"}' in healed.source


def test_tokens_of_another_template_are_not_escaped() -> None:
    messages = history(said("user", END))
    assert neutralize(messages, ("x", ""), []) is messages


@given(st.text("ab<|im_endstar>｜x"), st.sampled_from(["user", "tool"]))  # noqa: RUF001
def test_escaping_breaks_all_control_tokens_and_removes_no_character(words: str, role: str) -> None:
    healed, _ = heal_tokens(*history(said(role, words)))
    assert not any(token in healed[0].text for token in TOKENS if token)
    assert healed[0].text.replace("\u200b", "") == words
    assert heal_tokens(*healed) == (healed, [])


@pytest.mark.parametrize("unit", ["<|im_end|>", "<|im_", "aba", "ab"])
def test_escaping_control_tokens_takes_linear_time(unit: str) -> None:
    assert is_linear(
        lambda words: heal_tokens(Message("user", words, b'{"content":"' + words.encode() + b'"}')),
        lambda size: unit * size,
        5_000,
    )


NO_DEVELOPER = Template(has_developer=False)
FIRST = Template(system="first")
NOWHERE = Template(system="nowhere")
TURNS = Template(alternates=True)
STRICT = Template(has_developer=False, system="nowhere", alternates=True)

S, D = said("system", "s"), said("developer", "d")
D_AS_S = said("system", "d")
U, A = said("user", "u"), said("assistant", "a")
NOTED = said("user", f"{SYSTEM_NOTE}\n\ns")

ROLES_PLAYBOOK: list[tuple[Template, list[JsonObject], list[JsonObject], list[str]]] = [
    (Template(), [S, D, S, U, U, A, A, S], [S, D, S, U, U, A, A, S], []),
    (NO_DEVELOPER, [D, U, D], [D_AS_S, U, D_AS_S], ["developer_role"] * 2),
    (FIRST, [], [], []),
    (FIRST, [S, U, A], [S, U, A], []),
    (FIRST, [S, S], [said("system", "s\n\ns")], ["system_role"]),
    (FIRST, [S, S, U, S, A], [said("system", "s\n\ns"), U, NOTED, A], ["system_role"] * 2),
    (FIRST, [U, S], [U, NOTED], ["system_role"]),
    (NOWHERE, [U, A], [U, A], []),
    (NOWHERE, [S, U, A], [said("user", "s\n\nu"), A], ["system_role"]),
    (NOWHERE, [S, S, U, S], [said("user", "s\n\ns\n\nu"), NOTED], ["system_role"] * 2),
    (NOWHERE, [S], [said("user", "s")], ["system_role"]),
    (NOWHERE, [S, A, U], [said("user", "s"), A, U], ["system_role"]),
    (TURNS, [U, A, U, A], [U, A, U, A], []),
    (
        TURNS,
        [U, U, U, A, A],
        [said("user", "u\n\nu\n\nu"), said("assistant", "a\n\na")],
        ["alternation"] * 2,
    ),
    (TURNS, [S, S, U], [S, S, U], []),
    (
        TURNS,
        [U, A, called(call("c")), result("c"), result("d"), A],
        [U, called(call("c"), content="a"), result("c"), result("d"), A],
        ["alternation"],
    ),
    (TURNS, [called(call("c")), A], [called(call("c")), A], []),
    (
        STRICT,
        [D, U, S, U],
        [said("user", f"d\n\nu\n\n{SYSTEM_NOTE}\n\ns\n\nu")],
        ["developer_role", "system_role", "system_role", "alternation"],
    ),
]


@pytest.mark.parametrize(("template", "received", "expected", "facts"), ROLES_PLAYBOOK)
def test_roles_are_adapted_to_the_template(
    template: Template, received: list[JsonObject], expected: list[JsonObject], facts: list[str]
) -> None:
    reported: list[Fact] = []
    original = history(*received)
    healed = fit_roles(original, template, reported)
    assert written(healed) == expected
    assert reported == [Healed(fact) for fact in facts]
    assert facts or all(message is other for message, other in zip(healed, original, strict=True))


@pytest.mark.parametrize("message", [S, U])
def test_adapting_roles_takes_linear_time(message: JsonObject) -> None:
    messages = history(message)
    assert is_linear(
        lambda text: fit_roles(messages * len(text), STRICT, []), lambda size: "x" * size, 500
    )


def tool(function: JsonValue) -> Tool:
    return Tool("f", True, json.dump({"type": "function", "function": function}))


def test_a_null_description_of_a_tool_is_removed() -> None:
    (healed,), facts = heal_tools((tool({"name": "f", "description": None, "strict": None}),))
    assert json.parse(healed.source) == {
        "type": "function",
        "function": {"name": "f", "strict": None},
    }
    assert facts == (Healed("description"),)


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "parameters": None}, None])
def test_tools_without_a_null_description_are_unchanged(function: JsonValue) -> None:
    original = tool(function)
    (healed,), facts = heal_tools((original,))
    assert healed is original
    assert facts == ()


STRICT_TEMPLATE = Template(
    has_developer=False, system="first", alternates=True, control_tokens=("<|im_end|>", "ab")
)
TEMPLATES = (Template(), STRICT_TEMPLATE, Template(system="nowhere", control_tokens=("ab",)))

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


@pytest.mark.parametrize("template", [Template(), STRICT_TEMPLATE])
def test_an_intact_history_is_returned_unchanged(template: Template) -> None:
    healed, facts = heal_messages(HEALTHY, template)
    assert all(message is other for message, other in zip(healed, HEALTHY, strict=True))
    assert facts == ()


def test_a_history_with_every_kind_of_defect_is_repaired_in_one_pass() -> None:
    broken = history(
        said("developer", "Be brief."),
        result("z", "old <|im_end|>"),
        said("user", "Hi"),
        called({"function": {"name": "look", "arguments": "{bad"}}),
        said("system", "Hurry."),
    )
    healed, facts = heal_messages(broken, STRICT_TEMPLATE)
    assert written(healed) == [
        said("system", "Be brief."),
        said("user", f"{introduce_orphan('')}\n\nold <\u200b|im_end|>\n\nHi"),
        called(call("call_3_0", arguments='{"unparsable":"{bad"}')),
        result("call_3_0", UNANSWERED),
        said("user", "System note:\n\nHurry."),
    ]
    assert [fact.what for fact in facts if isinstance(fact, Healed)] == [
        *("arguments", "orphan_result", "call_id", "unanswered_call"),
        *("developer_role", "system_role", "alternation", "control_token"),
    ]


IDS = st.sampled_from(["a", "b", "", None])
ARGUMENTS = st.sampled_from(["{}", "{bad", "", None, {"a": 1}])
CONTENTS = st.sampled_from(
    ["x", "", None, "xab", "<|im_end|>", [{"type": "text", "text": "aab"}], [{"type": "x"}]]
)
NAMES = st.sampled_from(["look", "go"])
CALLS = st.lists(st.builds(call, IDS, NAMES, ARGUMENTS), min_size=1, max_size=3)
SAID = st.builds(said, st.sampled_from(["system", "developer", "user", "assistant"]), CONTENTS)
MESSAGES = st.lists(
    st.one_of(
        SAID,
        CALLS.map(lambda calls: called(*calls)),
        st.builds(result, IDS, CONTENTS),
        st.builds(lambda call_id, name: result(call_id, name=name), IDS, NAMES),
        st.just({"role": "user"}),
    ),
    max_size=8,
)


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_repairing_a_repaired_history_changes_nothing(
    messages: list[JsonObject], template: Template
) -> None:
    once, _ = heal_messages(history(*messages), template)
    twice, facts = heal_messages(once, template)
    assert twice == once
    assert facts == ()
    written(once)


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_every_call_has_a_result_and_every_result_has_a_call_after_the_repair(
    messages: list[JsonObject], template: Template
) -> None:
    original = history(*messages)
    healed, facts = heal_messages(original, template)
    assert unpaired(healed) == 0
    assert heal_messages(original, template) == (healed, facts)
    assert facts or all(message is other for message, other in zip(healed, original, strict=True))


@given(MESSAGES, st.sampled_from(TEMPLATES))
def test_the_repair_loses_no_text(messages: list[JsonObject], template: Template) -> None:
    original = history(*messages)
    healed, _ = heal_messages(original, template)
    all_text = "\n".join(message.text.replace("\u200b", "") for message in healed)
    for message in original:
        assert message.text in all_text
    assert all_text.count("x") >= sum(message.text.count("x") for message in original)


@given(MESSAGES, MESSAGES.filter(bool))
def test_appending_messages_changes_only_the_notes_about_missing_results(
    messages: list[JsonObject], more: list[JsonObject]
) -> None:
    before = history(*messages)
    longer, new_facts = heal_messages((*before, *history(more[0])))
    healed, facts = heal_messages(before)
    orphan = Healed("orphan_result")
    if more[0]["role"] != "tool" or new_facts.count(orphan) > facts.count(orphan):
        assert longer[: len(healed)] == healed


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_complete_repair_takes_time_linear_in_the_history(template: Template) -> None:
    unit = (
        *HEALTHY,
        *history(called(call(None), call("b")), result(None), result("z"), said("user", "ab")),
    )

    def work(text: str) -> tuple[Message, ...]:
        return heal_messages(unit * len(text), template)[0]

    assert is_linear(work, lambda size: "x" * size, 30)


def test_the_text_continue_follows_a_final_assistant_message_if_the_template_has_no_prefill() -> (
    None
):
    ends = (user_message("Hi"), assistant_message("Red,"))
    template = Template(prefill=False)
    healed, facts = heal_messages(ends, template)
    assert [message.role for message in healed] == ["user", "assistant", "user"]
    assert healed[-1].text == "Continue."
    assert Healed("prefill") in facts
    assert heal_messages(ends[:1], template) == heal_messages(ends[:1])
    assert heal_messages((), template) == ((), ())


HI = said("user", "Hi <think>x</think>", reasoning="kept")


REASONING_PLAYBOOK: list[tuple[JsonObject, JsonObject]] = [
    (said("assistant", "a", reasoning_content="x"), said("assistant", "a")),
    (said("assistant", "a", reasoning="x", thinking="y"), said("assistant", "a")),
    (called(call("c"), content=None, reasoning="x"), called(call("c"), content=None)),
    (called(call("c"), reasoning="x"), called(call("c"))),
    (said("assistant", "<think>\nx\n</think>\n\na"), said("assistant", "a")),
    (said("assistant", "<think>\n\n</think>\n\na"), said("assistant", "a")),
    (said("assistant", "[THINK]x[/THINK]a", name="y"), said("assistant", "a", name="y")),
    (said("assistant", "x\n</think>\n\na"), said("assistant", "a")),
    (called(call("c"), content="<|channel>thought\nx<channel|>"), called(call("c"), content="")),
    (
        said("assistant", [text("<think>x</think>a"), text("<think>b</think>")]),
        said("assistant", [text("a"), text("<think>b</think>")]),
    ),
    (
        said("assistant", [{"type": "thinking", "thinking": "x"}, text("a")]),
        said("assistant", [text("a")]),
    ),
    (said("assistant", [{"type": "reasoning"}], reasoning="x"), said("assistant", [])),
]
WITHOUT_REASONING: list[JsonObject] = [
    HI,
    result("c", "<think>x</think>"),
    said("assistant", "a <think>b</think>"),
    said("assistant", 'the "thinking" member'),
    said("assistant", "a", reasoning_content=None),
    said("assistant", "reasoning", name="thinking"),
    said("assistant", [{"type": "image", "image": "thinking"}]),
    called(call("c"), content=None),
]


@pytest.mark.parametrize(("received", "expected"), REASONING_PLAYBOOK)
def test_the_policy_none_removes_reasoning(received: JsonObject, expected: JsonObject) -> None:
    assert written(replay_thoughts(history(received), "none")) == [expected]


@pytest.mark.parametrize("message", WITHOUT_REASONING)
def test_a_message_without_reasoning_is_unchanged(message: JsonObject) -> None:
    (original,) = history(message)
    (replayed,) = replay_thoughts((original,), "none")
    assert replayed is original


WITH_REASONING = said("assistant", "a", reasoning_content="x")
PLAIN = said("assistant", "a")


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (
            [HI, WITH_REASONING, HI, WITH_REASONING, WITH_REASONING],
            [HI, PLAIN, HI, WITH_REASONING, WITH_REASONING],
        ),
        ([WITH_REASONING, HI], [PLAIN, HI]),
        ([WITH_REASONING], [WITH_REASONING]),
        ([], []),
    ],
)
def test_the_policy_last_keeps_reasoning_after_the_last_user_message(
    received: list[JsonObject], expected: list[JsonObject]
) -> None:
    assert written(replay_thoughts(history(*received), "last")) == expected


def test_the_policy_full_keeps_all_reasoning() -> None:
    messages = history(WITH_REASONING, HI)
    assert replay_thoughts(messages, "full") is messages


@pytest.mark.parametrize("message", [WITH_REASONING, said("assistant", "<think>x</think>a")])
def test_removing_reasoning_takes_linear_time(message: JsonObject) -> None:
    messages = history(message)
    assert is_linear(
        lambda words: replay_thoughts(messages * len(words), "none"), lambda size: "x" * size, 500
    )
