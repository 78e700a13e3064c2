import math
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.task import PlannedTask
from temper_evals.scenarios.worlds import tool_name
from temper_evals.simulated import model as model_module
from temper_evals.simulated.model import SimulatedModel, WrittenReply
from temper_evals.simulated.profiles import (
    AFTER_RESULTS,
    BEFORE_ANSWERS,
    BEFORE_CALLS,
    REPEATING,
    Flaw,
    ModelProfile,
    Reaction,
    load_profile,
)
from temper_evals.simulated.request import read_request
from tests.examples import examples
from tests.unit.temper_evals.players import follow_plan, messages_of, play
from tests.unit.temper_evals.simulated.test_request import ANSWERING

REACTIONS = {
    Reaction.UNCHANGED: 0.0,
    Reaction.GENERIC: 0.5,
    Reaction.SPECIFIC: 1.0,
    Reaction.GIVES_UP: 1.0,
    Reaction.FAILS_AGAIN: 0.0,
    Reaction.OVER_ACTING: 0.0,
    Reaction.NEEDLESS_INVENTED: 0.0,
    Reaction.NEEDLESS_ARGUMENTS: 0.0,
    Reaction.NEEDLESS_TEXT: 0.0,
    Reaction.CONSTRAINED_ERROR: 0.0,
    Reaction.ANSWER_TOOL: 1.0,
    Reaction.ANSWER_TOOL_RESTRAINT: 1.0,
}
SINGLE = FAMILIES["single"](1)
DRAWS = examples(20_000)
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"name": {"enum": [str(SINGLE.calls[0].name)]}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}


def always(flaw: Flaw | None, **reactions: float) -> ModelProfile:
    named = {Reaction[name.upper()]: value for name, value in reactions.items()}
    rates = {} if flaw is None else {flaw: 1.0}
    return ModelProfile("made", "", rates, {**REACTIONS, **named})


def reply(profile: ModelProfile, task: PlannedTask, **members: JsonValue) -> WrittenReply:
    seed = members.pop("seed", 0)
    assert isinstance(seed, int)
    seen = read_request({**task.request(seed), **members})
    assert seen is not None
    return SimulatedModel(profile).reply(seen)


def after(task: PlannedTask, reply_text: str, nudge: str) -> list[JsonValue]:
    return [
        *messages_of(task),
        {"role": "assistant", "content": reply_text},
        {"role": "user", "content": nudge},
    ]


def is_right(written_reply: WrittenReply, task: PlannedTask) -> bool:
    first = task.calls[0]
    return written_reply.calls[:1] == ((first.name, json.dump_text(first.arguments)),)


def test_equal_requests_get_equal_replies() -> None:
    profile = load_profile("p-small")
    for index in range(60):
        task = FAMILIES["choose"](index)
        assert reply(profile, task) == reply(profile, task)


@pytest.mark.parametrize(
    ("flaw", "family"),
    [
        (Flaw.PROSE_FIRST, "single"),
        (Flaw.FOREIGN, "single"),
        (Flaw.BROKEN_JSON, "single"),
        (Flaw.WRONG_NAME, "single"),
        (Flaw.WRONG_TYPE, "single"),
        (Flaw.WRONG_VALUE, "single"),
        (Flaw.NEEDLESS_CALL, "none"),
        (Flaw.WRONG_COUNT, "parallel"),
    ],
)
def test_each_flaw_is_as_frequent_as_its_rate(flaw: Flaw, family: str) -> None:
    rate = load_profile("p-small").rates[flaw]
    profile = replace(always(flaw), rates={flaw: rate})
    task, count = FAMILIES[family](1), DRAWS
    seen = read_request(task.request(0))
    assert seen is not None
    simulated = SimulatedModel(profile)
    hits = sum(simulated.reply(replace(seen, seed=n)).flaw is flaw for n in range(count))
    tolerance = 2.576 * math.sqrt(rate * (1 - rate) / count)
    assert abs(hits / count - rate) < tolerance


@pytest.mark.parametrize(
    ("flaw", "reaction", "nudge"),
    [
        (Flaw.PROSE_FIRST, Reaction.GENERIC, "Please go on."),
        (Flaw.PROSE_FIRST, Reaction.SPECIFIC, f"Call {SINGLE.calls[0].name}."),
    ],
)
def test_a_correction_after_a_user_message_is_as_frequent_as_its_rate(
    flaw: Flaw, reaction: Reaction, nudge: str
) -> None:
    rate = load_profile("p-small").reactions[reaction]
    profile = replace(load_profile("p-small"), rates={flaw: 1.0})
    seen = read_request({**SINGLE.request(0), "messages": after(SINGLE, "Well.", nudge)})
    assert seen is not None
    simulated = SimulatedModel(profile)
    hits = sum(simulated.reply(replace(seen, seed=number)).flaw is None for number in range(DRAWS))
    assert abs(hits / DRAWS - rate) < 2.576 * math.sqrt(rate * (1 - rate) / DRAWS)


PARAPHRASES = [
    *("Go on.", "Please continue.", "You answered in plain text.", "That was no call."),
    *("Try again.", "Once more, please.", "Hm?", "I need an action from you.", "Proceed."),
    *("No.", "This is not what I wanted.", "Use your abilities.", "Weiter!", "次へ", "..."),
    *("Do it now.", "Stop talking.", "Please act.", "Continue, or say that you are done.", "Act!"),
]


def test_all_user_messages_without_a_tool_name_have_the_same_effect() -> None:
    profile = always(Flaw.PROSE_FIRST)
    replies = {
        tuple(
            reply(profile, SINGLE, seed=seed, messages=after(SINGLE, "Well.", paraphrase)).flaw
            for seed in range(40)
        )
        for paraphrase in PARAPHRASES
    }
    assert len(PARAPHRASES) == 20
    assert len(replies) == 1


def test_the_code_of_the_simulated_model_does_not_contain_the_name_of_a_proxy() -> None:
    folder = Path(model_module.__file__).parent
    texts = "".join(path.read_text(encoding="utf-8").lower() for path in folder.glob("*.py"))
    texts = texts.replace("temper_evals", "")  # the imports of this package
    assert not any(name in texts for name in ("temper", "forge", "litellm", "nudge"))


def test_a_reply_without_a_call_is_corrected_only_after_a_user_message() -> None:
    profile = always(Flaw.PROSE_FIRST)
    reply_message: JsonValue = {"role": "assistant", "content": "Well."}
    without_message = reply(profile, SINGLE, messages=[*messages_of(SINGLE), reply_message])
    assert without_message.flaw is Flaw.PROSE_FIRST
    messages = after(SINGLE, "Well.", f"Call {SINGLE.calls[0].name}.")
    assert is_right(reply(profile, SINGLE, messages=messages), SINGLE)


def test_the_model_never_writes_broken_json_if_holds_form_is_set() -> None:
    broken = always(Flaw.BROKEN_JSON)
    assert not is_right(reply(broken, SINGLE), SINGLE)
    assert is_right(reply(replace(broken, holds_form=True), SINGLE), SINGLE)
    assert reply(replace(always(Flaw.FOREIGN), holds_form=True), SINGLE).flaw is Flaw.FOREIGN


@pytest.mark.parametrize("flaw", [Flaw.PROSE_FIRST, Flaw.BROKEN_JSON, Flaw.WRONG_NAME])
def test_the_reply_to_a_request_with_a_json_schema_is_the_call_as_json_of_this_schema(
    flaw: Flaw,
) -> None:
    call_format: JsonObject = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    constrained = reply(always(flaw), SINGLE, response_format=call_format, tool_choice="none")
    assert constrained.calls == ()
    call = SINGLE.calls[0]
    assert json.parse(constrained.text) == {"name": call.name, "arguments": call.arguments}
    worse = reply(always(flaw, constrained_error=1.0), SINGLE, response_format=call_format)
    assert worse.flaw is Flaw.WRONG_VALUE


def test_the_reply_has_invented_values_for_a_json_schema_that_is_not_a_call() -> None:
    wanted: JsonObject = {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
    }
    number_format: JsonObject = {"type": "json_schema", "json_schema": {"schema": wanted}}
    arguments = json.parse(reply(always(None), SINGLE, response_format=number_format).text)
    assert isinstance(arguments, dict)
    assert isinstance(arguments["x"], int)


def test_a_call_is_written_as_text_if_tool_choice_is_none() -> None:
    unparsed = reply(always(None), SINGLE, tool_choice="none")
    assert unparsed.calls == ()
    assert unparsed.text.startswith("<tool_call>")
    broken = reply(always(Flaw.BROKEN_JSON), SINGLE, tool_choice="none")
    assert broken.text != unparsed.text


def test_the_model_calls_the_answer_tool_instead_of_answering_in_text() -> None:
    talk = FAMILIES["none"](1)
    tools: JsonValue = [*talk.setting.tools, ANSWERING]
    assert reply(always(None), talk, tools=tools).calls == (
        ("say", json.dump_text({"words": talk.answer})),
    )
    needless = always(Flaw.NEEDLESS_CALL)
    assert reply(needless, talk, tools=tools).flaw is None
    unrestrained = always(Flaw.NEEDLESS_CALL, answer_tool_restraint=0.0)
    assert reply(unrestrained, talk, tools=tools).flaw is Flaw.NEEDLESS_CALL
    assert reply(needless, talk).flaw is Flaw.NEEDLESS_CALL
    with_answer_tool: JsonValue = [*SINGLE.setting.tools, ANSWERING]
    assert reply(always(Flaw.PROSE_FIRST), SINGLE, tools=with_answer_tool).calls[0][0] == "say"


def test_the_reply_is_a_call_if_tool_choice_is_required() -> None:
    talk = FAMILIES["none"](1)
    forced = reply(always(None), talk, tool_choice="required")
    assert forced.flaw is Flaw.NEEDLESS_CALL
    assert reply(always(None), talk, tool_choice="required", tools=[]).calls == ()
    assert is_right(reply(always(Flaw.PROSE_FIRST), SINGLE, tool_choice="required"), SINGLE)


def test_the_flaw_quoted_makes_the_model_write_the_quoted_call_as_text() -> None:
    trap = FAMILIES["trap"](0)
    quoted = reply(always(Flaw.QUOTED), trap)
    assert quoted.calls == ()
    assert quoted.flaw is Flaw.QUOTED
    assert "cancel_order" in quoted.text


def test_the_flaws_prose_later_repeated_and_early_stop_occur_only_after_a_tool_result() -> None:
    chain = FAMILIES["chain"](0)
    _, transcript = play(chain, follow_plan)
    seen: list[JsonValue] = [*messages_of(chain), *transcript[:2]]
    for flaw in (Flaw.PROSE_LATER, Flaw.REPEATED, Flaw.EARLY_STOP):
        assert reply(always(flaw), chain).flaw is None
        assert reply(always(flaw), chain, messages=seen).flaw is flaw
    repeated = reply(always(Flaw.REPEATED), chain, messages=seen)
    assert is_right(repeated, chain)  # it repeats the first call


def test_a_model_may_give_up_after_the_error_of_a_tool() -> None:
    task = FAMILIES["failing"](0)
    _, transcript = play(task, follow_plan)
    seen: list[JsonValue] = [*messages_of(task), *transcript[:2]]
    gives_up = replace(always(None), rates={Flaw.EARLY_STOP: 1e-12})
    assert reply(gives_up, task, messages=seen).flaw is Flaw.EARLY_STOP
    assert reply(always(None), task, messages=seen).flaw is None


@pytest.mark.parametrize(
    ("flaw", "reaction"),
    [(Flaw.EARLY_STOP, Reaction.GIVES_UP), (Flaw.REPEATED, Reaction.FAILS_AGAIN)],
)
def test_giving_up_or_repeating_after_a_tool_error_is_as_frequent_as_its_rate(
    flaw: Flaw, reaction: Reaction
) -> None:
    profile = load_profile("n-30b")
    task = FAMILIES["failing"](0)
    _, transcript = play(task, follow_plan)
    seen = read_request({**task.request(0), "messages": [*messages_of(task), *transcript[:2]]})
    assert seen is not None
    simulated, count = SimulatedModel(profile), DRAWS
    flaws = [simulated.reply(replace(seen, seed=number)).flaw for number in range(count)]
    is_end = {Flaw.EARLY_STOP, Flaw.PROSE_LATER}
    kinds = is_end if flaw in is_end else {*Flaw} - is_end
    rate, hits = profile.reactions[reaction], sum(flaw in kinds for flaw in flaws)
    assert flaws.count(flaw) > 0
    assert abs(hits / count - rate) < 2.576 * math.sqrt(rate * (1 - rate) / count)


def test_a_user_message_after_the_answer_can_cause_a_needless_call() -> None:
    task = FAMILIES["single"](0)
    _, transcript = play(task, follow_plan)
    nudge: JsonValue = {"role": "user", "content": "Please go on."}
    answered: list[JsonValue] = [*messages_of(task), *transcript]
    busy = replace(always(None, over_acting=1.0), rates={Flaw.FOREIGN: 1e-12})
    assert reply(busy, task, messages=[*answered, nudge]).flaw is Flaw.NEEDLESS_CALL
    assert reply(busy, task, messages=answered[:-1]).flaw is None
    calm = always(None, over_acting=1.0)  # a profile without flaws makes no needless call
    assert reply(calm, task, messages=[*answered, nudge]).flaw is None


def test_the_reply_to_a_close_out_check_is_a_call_or_done() -> None:
    question = "If something is not done yet, do it now with a tool. Otherwise answer only DONE."
    task = FAMILIES["single"](0)
    _, transcript = play(task, follow_plan)
    nudge: JsonValue = {"role": "user", "content": question}
    assert (
        reply(always(None), task, messages=[*messages_of(task), *transcript, nudge]).text == "DONE"
    )
    stopped = after(SINGLE, "That was it.", question)
    corrected = always(Flaw.PROSE_FIRST, generic=1.0)
    assert is_right(reply(corrected, SINGLE, messages=stopped), SINGLE)
    stubborn = reply(always(Flaw.PROSE_FIRST, generic=0.0), SINGLE, messages=stopped)
    assert (stubborn.text, stubborn.flaw) == ("DONE", Flaw.PROSE_FIRST)


def test_a_needless_call_may_have_an_unknown_name_or_wrong_arguments_or_be_text() -> None:
    talk = FAMILIES["none"](1)
    names = {str(tool_name(tool)) for tool in talk.setting.tools}
    invented = reply(always(Flaw.NEEDLESS_CALL, needless_invented=1.0), talk)
    assert invented.calls[0][0] not in names
    misfit = reply(always(Flaw.NEEDLESS_CALL, needless_arguments=1.0), talk)
    assert misfit.calls[0][0] in names
    assert "value" in misfit.calls[0][1]
    needless = reply(always(Flaw.NEEDLESS_CALL, needless_text=1.0), talk)
    assert needless.calls == ()
    assert needless.flaw is Flaw.NEEDLESS_CALL
    assert any(name in needless.text for name in names)
    forced = always(Flaw.NEEDLESS_CALL, needless_text=1.0)
    assert reply(forced, talk, tool_choice="required").calls
    assert reply(forced, talk, tools=[]).flaw is None


def test_after_an_error_for_a_needless_call_the_model_can_answer_without_a_call() -> None:
    talk = FAMILIES["none"](1)
    messages = after(talk, "<call>", f"There is no such tool: {tool_name(talk.setting.tools[0])}.")
    assert reply(always(Flaw.NEEDLESS_CALL), talk, messages=messages).flaw is None
    stubborn = always(Flaw.NEEDLESS_CALL, specific=0.0)
    assert reply(stubborn, talk, messages=messages).flaw is Flaw.NEEDLESS_CALL


def test_the_model_makes_no_call_without_the_result_that_the_call_needs() -> None:
    long = FAMILIES["long"](0)
    _, transcript = play(long, follow_plan)
    read: list[JsonValue] = [*messages_of(long), *transcript[:-3]]
    assert len(reply(always(None), long, messages=read).calls) == 1
    first = {**transcript[1], "content": "(a page was here)"}
    cut: list[JsonValue] = [*messages_of(long), transcript[0], first, *transcript[2:-3]]
    assert reply(always(None), long, messages=cut).calls == ()


def test_the_flaw_wrong_count_gives_a_single_call_or_one_call_too_many() -> None:
    parallel = FAMILIES["parallel"](0)
    counts = {len(reply(always(Flaw.WRONG_COUNT), parallel, seed=seed).calls) for seed in range(30)}
    due = len(parallel.calls)
    assert counts == {1, due + 1}


def conversation(task: PlannedTask, results: int) -> list[JsonValue]:
    """Return the messages of a run without errors, up to this number of results."""
    return [*messages_of(task), *play(task, follow_plan)[1][: 2 * results]]


def repeat(task: PlannedTask, messages: list[JsonValue]) -> list[JsonValue]:
    """Append the last call and its result once more."""
    return [*messages, *messages[-2:]]


CHAIN = FAMILIES["chain"](0)
LAST = len(CHAIN.calls)


@pytest.mark.parametrize("name", ["p-small", "mismatch", "n-8b"])
def test_adding_flaws_with_a_rate_of_zero_changes_no_reply(name: str) -> None:
    profile = load_profile(name)
    zeros = dict.fromkeys((*AFTER_RESULTS, Flaw.PLACEHOLDERS), 0.0)
    extended = replace(profile, rates={**profile.rates, **zeros})
    nudge: JsonValue = {"role": "user", "content": "Please go on."}
    for task in (CHAIN, FAMILIES["none"](1), FAMILIES["ask"](0)):
        for results in range(len(task.calls) + 1):
            messages = conversation(task, results)
            for seen in (messages, repeat(task, messages) if results else [*messages, nudge]):
                for seed in range(20):
                    before = reply(profile, task, messages=seen, seed=seed)
                    assert reply(extended, task, messages=seen, seed=seed) == before


@pytest.mark.parametrize("flaw", dict.fromkeys((*BEFORE_CALLS, *BEFORE_ANSWERS)))
def test_a_flaw_occurs_where_the_lists_before_calls_and_before_answers_say(flaw: Flaw) -> None:
    profile = always(flaw)
    assert reply(profile, CHAIN).flaw is None
    in_between = reply(profile, CHAIN, messages=conversation(CHAIN, 1))
    assert (in_between.flaw is flaw) is (flaw in BEFORE_CALLS)
    at_the_end = reply(profile, CHAIN, messages=conversation(CHAIN, LAST))
    assert (at_the_end.flaw is flaw) is (flaw in BEFORE_ANSWERS)
    assert at_the_end.runs_away is (flaw is Flaw.RUNAWAY)
    without_tools = reply(profile, CHAIN, messages=conversation(CHAIN, LAST), tools=[])
    assert without_tools.flaw is None


def test_the_flaw_repeated_text_repeats_the_call_until_a_user_message() -> None:
    profile = always(Flaw.REPEATED_TEXT, generic=1.0)
    messages = conversation(CHAIN, LAST)
    for _ in range(3):
        repeated = reply(profile, CHAIN, messages=messages)
        assert repeated.flaw is Flaw.REPEATED_TEXT
        assert json.dump_text(CHAIN.calls[-1].arguments) in repeated.text
        messages = repeat(CHAIN, messages)
    nudge: JsonValue = {"role": "user", "content": "That was already done."}
    assert reply(profile, CHAIN, messages=[*messages, nudge]).text == CHAIN.answer


@pytest.mark.parametrize("results", [1, LAST])
def test_after_a_correction_the_model_makes_the_next_call_of_the_plan_or_answers(
    results: int,
) -> None:
    task = CHAIN
    messages: list[JsonValue] = [
        *conversation(task, results),
        {"role": "assistant", "content": "(a flawed reply)"},
        {"role": "user", "content": "This call was made. What is the next step?"},
    ]
    for flaw in REPEATING:
        corrected = reply(always(flaw, generic=1.0), task, messages=messages)
        assert corrected.flaw is None
        due = task.calls[results : results + 1]
        assert [name for name, _ in corrected.calls] == [call.name for call in due]
        stubborn = reply(always(flaw, generic=0.0), task, messages=messages)
        assert stubborn.flaw is flaw


def test_no_call_is_repeated_if_tool_choice_or_the_schema_requires_another() -> None:
    profile, messages = always(Flaw.REPEATED_TEXT), conversation(CHAIN, 1)
    forced = reply(profile, CHAIN, messages=messages, tool_choice="required")
    assert [name for name, _ in forced.calls] == [CHAIN.calls[1].name]
    for names, flaw, location in (
        (None, Flaw.REPEATED_TEXT, 0),
        ([CHAIN.calls[1].name], None, 1),
    ):
        name: JsonObject = {"enum": [*names]} if names else {"type": "string"}
        schema: JsonObject = {
            **SCHEMA,
            "properties": {"name": name, "arguments": {"type": "object"}},
        }
        call_format: JsonObject = {"type": "json_schema", "json_schema": {"schema": schema}}
        constrained = reply(profile, CHAIN, messages=messages, response_format=call_format)
        assert constrained.flaw is flaw
        call = CHAIN.calls[location]
        assert json.parse(constrained.text) == {"name": call.name, "arguments": call.arguments}
    call_format = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    for flaw in (Flaw.ECHOED, Flaw.REPEATED_TEXT):
        done = conversation(CHAIN, LAST)
        constrained = reply(always(flaw), CHAIN, messages=done, response_format=call_format)
        assert constrained.flaw is not flaw


def test_after_an_error_for_a_call_with_placeholders_the_model_answers() -> None:
    talk = FAMILIES["none"](1)
    profile = always(Flaw.PLACEHOLDERS)
    needless = reply(profile, talk)
    assert needless.flaw is Flaw.PLACEHOLDERS
    assert "your_" in needless.calls[0][1] or "example.com" in needless.calls[0][1]
    messages = after(talk, "<call>", f"{tool_name(talk.setting.tools[0])} has made-up values.")
    assert reply(profile, talk, messages=messages).text == talk.answer
    assert reply(profile, SINGLE).flaw is None


def test_a_profile_with_call_forms_writes_calls_as_text_unless_a_call_is_required() -> None:
    profile = replace(always(None), call_forms=("```json\n{call}\n```",))
    textual = reply(profile, SINGLE)
    assert (textual.calls, textual.flaw) == ((), Flaw.FOREIGN)
    call = SINGLE.calls[0]
    call_text = json.dump_text({"name": call.name, "arguments": call.arguments})
    assert textual.text == f"```json\n{call_text}\n```"
    assert is_right(reply(profile, SINGLE, tool_choice="required"), SINGLE)
    assert is_right(reply(profile.without(frozenset(Flaw)), SINGLE), SINGLE)
    without_repetition = profile.without(frozenset({Flaw.REPEATED}))
    assert reply(without_repetition, SINGLE) == textual
