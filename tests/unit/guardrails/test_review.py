import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import NamedTool, ToolCall, WrittenCall
from proxy.conversation.workflows import Workflow
from proxy.facts import Coerced, Dropped, Fact, Refused, Renamed
from proxy.guardrails.nudges import NO_TOOL_FITS
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.review import review
from proxy.guardrails.transcript import CompletedCall, Loop
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict
from tests.fakes.playbook import CLOCK, WEATHER, CountedIds, make_tool

RESPOND = OfferedTools(
    (WEATHER, CLOCK), TextPolicy.RESPOND, order_syntaxes(()), make_respond_tool(())
)
ACCEPT = replace(RESPOND, text_policy=TextPolicy.ACCEPT, respond=None)
REQUIRE = replace(ACCEPT, text_policy=TextPolicy.REQUIRE)
TIME = WrittenCall("get_time", "{}", "a")


def judge(reply: ReadReply, offer: OfferedTools = RESPOND) -> Verdict:
    return review(reply, offer, CountedIds())


def accepted(reply: ReadReply, offer: OfferedTools = RESPOND) -> Accepted:
    verdict = judge(reply, offer)
    assert isinstance(verdict, Accepted), verdict
    return verdict


def rejected(reply: ReadReply, offer: OfferedTools = RESPOND) -> Rejected:
    verdict = judge(reply, offer)
    assert isinstance(verdict, Rejected), verdict
    return verdict


def test_valid_arguments_keep_the_models_bytes() -> None:
    arguments = '{ "city":"Paris",\n"days": 2 }'
    verdict = accepted(ReadReply(calls=(WrittenCall("get_weather", arguments, "a"),)))
    assert verdict.calls == (ToolCall("a", "get_weather", arguments),)
    assert verdict.facts == ()


def test_a_value_of_the_wrong_type_is_coerced_and_reported() -> None:
    call = WrittenCall("get_weather", '{"city": "Paris", "days": "3"}', "a")
    verdict = accepted(ReadReply(calls=(call,)))
    assert verdict.calls == (ToolCall("a", "get_weather", '{"city":"Paris","days":3}'),)
    assert verdict.facts == (Coerced("get_weather", "/days"),)


def test_a_similar_name_is_corrected_and_reported() -> None:
    verdict = accepted(ReadReply(calls=(WrittenCall("functions.get-time", {}, "a"),)))
    assert verdict.calls[0].name == "get_time"
    assert verdict.facts == (Renamed("functions.get-time", "get_time"),)


def test_an_alias_resolves_to_its_tool_only_if_the_tool_is_offered() -> None:
    offer = replace(RESPOND, aliases={"clock": "get_time", "sun": "no_tool", "get_weather": "x"})
    verdict = accepted(ReadReply(calls=(WrittenCall("clock", {}, "a"),)), offer)
    assert verdict.calls[0].name == "get_time"
    assert verdict.facts == (Renamed("clock", "get_time"),)
    assert rejected(ReadReply(calls=(WrittenCall("sun", {}, "a"),)), offer).defect is (
        Defect.UNKNOWN_TOOL
    )


def test_missing_and_duplicate_call_ids_are_replaced() -> None:
    verdict = accepted(ReadReply(calls=(TIME, TIME)))
    assert [call.id for call in verdict.calls] == ["a", "made_1"]
    verdict = accepted(ReadReply(calls=(replace(TIME, id=None), replace(TIME, id=""))))
    assert [call.id for call in verdict.calls] == ["made_1", "made_2"]


def test_a_call_in_the_text_that_repeats_a_structured_call_is_dropped() -> None:
    verdict = accepted(ReadReply(calls=(TIME, replace(TIME, id=None))))
    assert [call.id for call in verdict.calls] == ["a"]
    assert verdict.facts == (Dropped("repeated_call"),)


@pytest.mark.parametrize(
    ("call", "defect"),
    [
        (WrittenCall("launch_rocket", "{}"), Defect.UNKNOWN_TOOL),
        (WrittenCall("get_weather", '{"city": 1, "unit": "kelvin"}'), Defect.INVALID_ARGUMENTS),
        (WrittenCall("get_weather", "{}"), Defect.INVALID_ARGUMENTS),
        (WrittenCall("get_weather", "Paris, please"), Defect.BROKEN_ARGUMENTS),
        (WrittenCall("get_weather", ["Paris"]), Defect.BROKEN_ARGUMENTS),
    ],
)
@pytest.mark.parametrize("offer", [RESPOND, ACCEPT, REQUIRE])
def test_a_call_with_a_defect_is_rejected(
    call: WrittenCall, defect: Defect, offer: OfferedTools
) -> None:
    verdict = rejected(ReadReply("Looking.", (call,)), offer)
    assert verdict.defect is defect
    assert verdict.fallback == Accepted("Looking.", (), "stop", verdict.facts)
    assert verdict.nudge


def test_the_fallback_after_an_invalid_call_contains_the_calls_before_it() -> None:
    bad = WrittenCall("launch_rocket", {"to": "moon"}, "b")
    verdict = rejected(ReadReply(calls=(TIME, bad)))
    assert verdict.fallback.calls == (ToolCall("a", "get_time", "{}"),)
    assert verdict.fallback.reason == "tool_calls"
    assert [message.role for message in verdict.nudge] == ["assistant", "tool", "tool"]


def test_the_fallback_contains_neither_the_invalid_call_nor_later_calls() -> None:
    bad = WrittenCall("get_wether", "{}", "b")
    assert rejected(ReadReply(calls=(bad, TIME))).fallback.calls == ()
    assert len(rejected(ReadReply(calls=(TIME, bad, TIME))).fallback.calls) == 1


def test_the_nudge_after_broken_arguments_contains_no_call() -> None:
    verdict = rejected(ReadReply("Hm.", (TIME, WrittenCall("get_weather", "Paris"))))
    assert [message.role for message in verdict.nudge] == ["assistant", "user"]


def test_the_nudge_after_an_unknown_tool_contains_the_call() -> None:
    verdict = rejected(ReadReply(calls=(WrittenCall("launch_rocket", "{broken", "b"),)))
    assert verdict.nudge[0].calls == (ToolCall("b", "launch_rocket", "{}"),)


def test_a_tool_other_than_the_required_one_is_rejected() -> None:
    offer = replace(REQUIRE, choice=NamedTool("get_weather"))
    assert rejected(ReadReply(calls=(TIME,)), offer).defect is Defect.WRONG_TOOL
    call = WrittenCall("get_weather", {"city": "Paris"})
    assert accepted(ReadReply(calls=(call,)), offer).calls[0].name == "get_weather"


def test_a_tool_that_is_not_allowed_is_rejected() -> None:
    offer = replace(RESPOND, allowed=frozenset(("get_weather",)))
    verdict = rejected(ReadReply(calls=(TIME,)), offer)
    assert verdict.defect is Defect.WRONG_TOOL
    assert "get_time" not in verdict.nudge[-1].text.partition("Call ")[2]
    call = WrittenCall("get_weather", {"city": "Paris"})
    assert accepted(ReadReply(calls=(call,)), offer).calls[0].name == "get_weather"


def test_only_the_first_call_is_kept_if_parallel_calls_are_disabled() -> None:
    offer = replace(RESPOND, parallel=False)
    verdict = accepted(ReadReply(calls=(TIME, replace(TIME, id="b"))), offer)
    assert [call.id for call in verdict.calls] == ["a"]
    assert verdict.facts == (Dropped("parallel_call"),)


def test_prose_is_rejected_unless_the_policy_accepts_it() -> None:
    prose = ReadReply("It is sunny.")
    assert rejected(prose).defect is Defect.PROSE
    assert rejected(prose, REQUIRE).defect is Defect.PROSE
    assert accepted(prose, ACCEPT).text == "It is sunny."


def test_a_call_in_an_unknown_syntax_is_rejected_although_prose_is_accepted() -> None:
    call = ReadReply("get_weather{city: Paris}", facts=(Refused("not_a_call"),))
    auto = replace(RESPOND, text_policy=TextPolicy.AUTO)
    verdict = rejected(call, auto)
    assert verdict.defect is Defect.UNKNOWN_SYNTAX
    assert verdict.fallback == Accepted(call.text, (), "stop", call.facts)
    assert accepted(replace(call, facts=(Refused("quoted"),)), auto).text == call.text
    assert accepted(replace(call, has_responded=True), auto).text == call.text
    assert accepted(call, ACCEPT).text == call.text
    assert rejected(call, RESPOND).defect is Defect.PROSE


def test_an_empty_reply_is_rejected_unless_the_policy_accepts_prose() -> None:
    assert rejected(ReadReply(" ")).defect is Defect.EMPTY
    assert rejected(ReadReply(), REQUIRE).defect is Defect.EMPTY
    assert accepted(ReadReply(), ACCEPT).text == ""


def test_a_message_of_the_respond_tool_is_accepted_as_an_answer() -> None:
    verdict = accepted(ReadReply("Sunny.", reason="tool_calls", has_responded=True))
    assert verdict == Accepted("Sunny.", (), "stop")


def test_truncated_prose_is_accepted_unless_a_call_is_required() -> None:
    prose = ReadReply("It is", reason="length")
    assert accepted(prose).reason == "length"
    instruction = ReadReply("To get the time, you can use `get_time` like this:", reason="length")
    assert accepted(instruction).reason == "length"
    weather = CompletedCall("get_weather", {"city": "Paris"}, "rain", has_failed=False)
    after_call = replace(
        RESPOND, user_texts=("Note 'Oslo'.",), executed=(weather,), text_policy=TextPolicy.AUTO
    )
    assert rejected(instruction, after_call).defect is Defect.ANNOUNCED
    assert rejected(prose, REQUIRE).defect is Defect.PROSE


def test_the_finish_reason_stop_becomes_tool_calls_but_content_filter_is_unchanged() -> None:
    assert accepted(ReadReply(reason="content_filter"), ACCEPT).reason == "content_filter"
    assert accepted(ReadReply(calls=(TIME,), reason="stop")).reason == "tool_calls"


@pytest.mark.fault("F105")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("arguments", ['{"city": "Par', '{"city": "Paris"', "", "5"])
def test_a_call_truncated_by_the_token_limit_is_never_completed(
    arguments: str, reason: str
) -> None:
    call = WrittenCall("get_weather", arguments)
    verdict = accepted(ReadReply("Hm.", (TIME, call), reason=reason))
    assert [call.name for call in verdict.calls] == ["get_time"]
    assert verdict.reason == reason
    assert verdict.facts == (Refused("cut_off"),)


def test_the_finish_reason_of_a_truncated_call_is_length() -> None:
    offer = replace(RESPOND, stop_strings=True)
    verdict = accepted(ReadReply("Hm.", (WrittenCall("get_weather", '{"city'),)), offer)
    assert verdict == Accepted("Hm.", (), "length", (Refused("cut_off"),))


def test_a_complete_call_before_the_token_limit_is_accepted() -> None:
    call = WrittenCall("get_weather", '{"city": "Paris"}', "a")
    assert accepted(ReadReply(calls=(call,), reason="length")).calls
    rescued = WrittenCall("get_weather", {"city": "Paris"}, "a")
    assert accepted(ReadReply(calls=(rescued,), reason="length")).calls


def test_a_call_without_arguments_is_complete_if_the_model_stopped() -> None:
    offer = replace(RESPOND, stop_strings=True)
    assert accepted(ReadReply(calls=(WrittenCall("get_time", ""),)), offer).calls


def test_missing_brackets_are_added_only_if_the_model_ended_the_reply() -> None:
    call = WrittenCall("get_weather", '{"city": "Paris"', "a")
    assert accepted(ReadReply(calls=(call,))).calls[0].arguments == '{"city":"Paris"}'
    assert not accepted(ReadReply(calls=(call,)), replace(RESPOND, stop_strings=True)).calls


def test_a_broken_call_is_rejected_and_never_sent() -> None:
    reply = ReadReply("Hm. <tool_call>{", (TIME,), is_broken=True, broken_end="<tool_call>{")
    verdict = rejected(reply, ACCEPT)
    assert verdict.defect is Defect.BROKEN_ARGUMENTS
    assert [message.role for message in verdict.nudge] == ["assistant", "user"]
    assert verdict.fallback.text == "Hm. "
    assert [call.id for call in verdict.fallback.calls] == ["a"]
    assert rejected(ReadReply("<tool_call>{", is_broken=True)).fallback.calls == ()


@pytest.mark.parametrize(
    ("name", "arguments", "defect"),
    [
        ("get_weather", '{"city": "Paris", "days": "3"}', Defect.INVALID_ARGUMENTS),
        ("get_weather", '{"city": "Paris",}', Defect.BROKEN_ARGUMENTS),
        ("functions.get-time", "{}", Defect.UNKNOWN_TOOL),
    ],
)
def test_without_repairs_a_call_with_an_inexact_name_or_type_is_rejected(
    name: str, arguments: str, defect: Defect
) -> None:
    offer = replace(RESPOND, repairs=False)
    verdict = rejected(ReadReply(calls=(WrittenCall(name, arguments, "a"),)), offer)
    assert verdict.defect is defect
    right = WrittenCall("get_weather", '{ "city":"Paris"}', "a")
    assert accepted(ReadReply(calls=(right,)), offer).calls[0].arguments == right.arguments


def test_only_the_call_that_continues_a_loop_is_rejected() -> None:
    offer = replace(RESPOND, loop=Loop("get_weather", {"city": "Paris"}, 3))
    call = WrittenCall("get_weather", {"city": "Paris"}, "a")
    verdict = rejected(ReadReply(calls=(call,)), offer)
    assert verdict.defect is Defect.LOOP
    assert "last 3 calls of get_weather" in verdict.nudge[-1].text
    assert accepted(ReadReply(calls=(replace(call, arguments={"city": "Oslo"}),)), offer).calls
    assert accepted(ReadReply(calls=(TIME,)), offer).calls


def test_the_first_three_nudges_about_a_missing_step_become_firmer() -> None:
    rules = Workflow(("get_weather",), (), ("get_time",))
    offer = replace(RESPOND, workflow=rules)
    verdicts = [
        review(ReadReply(calls=(TIME,)), offer, CountedIds(), insistence=n) for n in range(4)
    ]
    assert {verdict.defect for verdict in verdicts if isinstance(verdict, Rejected)} == {
        Defect.STEP_MISSING
    }
    problems = [verdict.nudge[-1].text for verdict in verdicts if isinstance(verdict, Rejected)]
    assert len({*problems}) == 3
    assert problems[2] == problems[3]
    assert "Stop" in problems[2]
    done = CompletedCall("get_weather", {}, "", has_failed=False)
    assert accepted(ReadReply(calls=(TIME,)), replace(offer, completed=(done,))).calls


# Replies after tools have run, and calls in the text (without an id).

MAIL = make_tool(
    "send_mail", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
)
NOTHING = make_tool("no_function", {"type": "object", "properties": {}})
AUTO = replace(RESPOND, tools=(WEATHER, CLOCK, MAIL), text_policy=TextPolicy.AUTO, respond=None)
PARIS = CompletedCall("get_weather", {"city": "Paris"}, "rain", has_failed=False)
RAN = replace(AUTO, user_texts=("How is the weather in 'Paris'?",), executed=(PARIS,))
CORRECTED = AUTO.after_bad_call(may_withdraw=False)
IN_PARIS = WrittenCall("get_weather", {"city": "Paris"})
IN_ROME = WrittenCall("get_weather", {"city": "Rome"})
NOW = WrittenCall("get_time", {})
TO_EVA = WrittenCall("send_mail", {"to": "eva@example.org"})
DECLINED = WrittenCall("no_function", {})
BY_ENGINE = WrittenCall("get_weather", '{"city": "Paris"}', "a")
DENIED = replace(AUTO, denied=(IN_PARIS,))
QUOTED = Refused("quoted_from_history")
RAN_BEFORE, INVENTED, REPEATED = map(Dropped, ("executed_call", "invented_values", "repeated_call"))


@pytest.mark.parametrize(
    ("offer", "reply", "defect", "text", "calls", "facts"),
    [
        # a call of `no_function`
        (AUTO, ReadReply("", (DECLINED,)), None, NO_TOOL_FITS, "", [Dropped("no_function")]),
        (AUTO, ReadReply("Hm.", (DECLINED,)), None, "Hm.", "", [Dropped("no_function")]),
        (AUTO, ReadReply("", (DECLINED, TIME)), Defect.UNKNOWN_TOOL, "", "", []),
        (REQUIRE, ReadReply("", (DECLINED,)), Defect.UNKNOWN_TOOL, "", "", []),
        (
            replace(AUTO, answer_schema={"type": "object"}),
            *(ReadReply("", (DECLINED,)), Defect.UNKNOWN_TOOL, "", "", []),
        ),
        (replace(AUTO, tools=(NOTHING,)), ReadReply("", (DECLINED,)), None, "", "no_function", []),
        (
            *(AUTO, ReadReply("{", (DECLINED,), is_broken=True, broken_end="{")),
            *(Defect.BROKEN_ARGUMENTS, "", "", []),
        ),
        # prose in place of a correction
        *(
            (CORRECTED, ReadReply(f"Which city{mark}"), None, f"Which city{mark}", "", [])
            for mark in ("?", "?**", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")
        ),
        (CORRECTED, ReadReply("It is noon."), Defect.PROSE, "It is noon.", "", []),
        (
            AUTO.after_bad_call(may_withdraw=True),
            *(ReadReply("It is noon."), None, "It is noon.", "", []),
        ),
        # calls that have run
        (RAN, ReadReply("", (IN_PARIS,)), Defect.EXECUTED, "", "", [RAN_BEFORE]),
        (RAN, ReadReply("", (IN_PARIS, NOW)), None, "", "get_time", [RAN_BEFORE]),
        (RAN, ReadReply("", (NOW, IN_PARIS)), None, "", "get_time", [RAN_BEFORE]),
        (RAN, ReadReply("", (IN_ROME,)), None, "", "get_weather", []),
        (
            *(RAN, ReadReply("", (IN_PARIS, WrittenCall("get_weather", "Rome")))),
            *(Defect.BROKEN_ARGUMENTS, "", "", [RAN_BEFORE]),
        ),
        (
            *(RAN, ReadReply("", (replace(IN_PARIS, arguments='{"city": "Paris"}', id="a"),))),
            *(None, "", "get_weather", []),
        ),
        (
            *(RAN, ReadReply("{", (IN_PARIS,), is_broken=True, broken_end="{")),
            *(Defect.BROKEN_ARGUMENTS, "", "", [RAN_BEFORE]),
        ),
        (
            replace(RAN, executed=(replace(PARIS, arguments={"city": "Paris", "unit": "k"}),)),
            ReadReply("", (replace(IN_PARIS, arguments={"city": "Paris", "unit": "k"}),)),
            *(Defect.INVALID_ARGUMENTS, "", "", []),
        ),
        (
            replace(RAN, loop=Loop("get_weather", {"city": "Paris"}, 3)),
            *(ReadReply("", (IN_PARIS,)), Defect.EXECUTED, "", "", [RAN_BEFORE]),
        ),
        (RAN, ReadReply("", (replace(IN_PARIS, id="a"),)), Defect.EXECUTED, "", "", [RAN_BEFORE]),
        (RAN, ReadReply("Hm.", (IN_PARIS,)), Defect.EXECUTED, "Hm.", "", [RAN_BEFORE]),
        (RAN, ReadReply('{"a": 1}', (IN_PARIS,)), Defect.EXECUTED, "", "", [RAN_BEFORE]),
        # a result that the model invented
        (AUTO, ReadReply('{"a": 1}', (NOW,)), None, "", "get_time", [Dropped("invented_result")]),
        (AUTO, ReadReply('{"a": 1}', (TIME,)), None, '{"a": 1}', "get_time", []),
        (AUTO, ReadReply("Hm.", (NOW,)), None, "Hm.", "get_time", []),
        # calls that repeat a tool's result
        (DENIED, ReadReply("", (IN_ROME,)), None, "", "get_weather", []),
        (DENIED, ReadReply("Hm.", (IN_PARIS, NOW)), None, "Hm.", "get_time", [QUOTED]),
        (DENIED, ReadReply("Hm.", (BY_ENGINE, NOW)), None, "Hm.", "get_time", [QUOTED]),
        (
            replace(AUTO, denied=(replace(IN_PARIS, arguments={"city": "Orl\u00e9ans"}),)),
            ReadReply("Hm.", (replace(BY_ENGINE, arguments='{"city": "Orl\\u00e9ans"}'), NOW)),
            *(None, "Hm.", "get_time", [QUOTED]),
        ),
        # repeated calls in a reply
        (
            *(AUTO, ReadReply("", (WrittenCall("get_weather", "Rome"), NOW))),
            *(Defect.BROKEN_ARGUMENTS, "", "", []),
        ),
        (
            replace(AUTO, tools=(CLOCK, NOTHING)),
            *(ReadReply("", (TIME, DECLINED)), None, "", "get_time no_function", []),
        ),
        (AUTO, ReadReply("", (NOW, NOW)), None, "", "get_time get_time", []),
        (AUTO, ReadReply("", (TIME, NOW)), None, "", "get_time", [REPEATED]),
        (AUTO, ReadReply("", (NOW, TIME)), None, "", "get_time", [REPEATED]),
        (
            replace(AUTO, user_texts=("Mail eva@example.org",)),
            ReadReply("", (replace(TO_EVA, arguments='{"to": "EVA@example.org"}', id="a"), TO_EVA)),
            *(None, "", "send_mail", [REPEATED]),
        ),
        (
            replace(AUTO, user_texts=("Mail eva@example.org",)),
            ReadReply("", (TO_EVA, replace(TO_EVA, arguments={"to": "EVA@example.org"}))),
            *(None, "", "send_mail", [REPEATED]),
        ),
        (AUTO, ReadReply("", (TIME, IN_ROME)), None, "", "get_time get_weather", []),
        (
            *(
                AUTO,
                ReadReply("", (replace(IN_ROME, arguments='{"city": "Oslo"}', id="a"), IN_ROME)),
            ),
            *(None, "", "get_weather get_weather", []),
        ),
        # values that occur nowhere in the conversation
        (AUTO, ReadReply("", (TO_EVA,)), Defect.INVENTED, "", "send_mail", []),
        (AUTO, ReadReply("", (TO_EVA, NOW)), Defect.INVENTED, "", "send_mail", []),
        (AUTO, ReadReply("", (NOW, TO_EVA, IN_ROME)), None, "", "get_time", [INVENTED, INVENTED]),
        (
            *(
                AUTO,
                ReadReply("", (replace(TO_EVA, arguments='{"to": "eva@example.org"}', id="a"),)),
            ),
            *(None, "", "send_mail", []),
        ),
        (
            *(AUTO, ReadReply("", (TIME, replace(TO_EVA, name="sendmail_to")))),
            *(Defect.UNKNOWN_TOOL, "", "get_time", []),
        ),
        (
            *(
                AUTO,
                ReadReply(
                    "", (replace(TO_EVA, arguments='{"to": "eva@example.org"}', id="a"), NOW)
                ),
            ),
            *(None, "", "send_mail get_time", []),
        ),
        (
            *(AUTO, ReadReply("", (replace(IN_ROME, arguments={"city": "a@b.org", "unit": "k"}),))),
            *(Defect.INVALID_ARGUMENTS, "", "", []),
        ),
        (
            replace(AUTO, user_texts=("Mail eva@example.org",)),
            *(ReadReply("", (TO_EVA,)), None, "", "send_mail", []),
        ),
        (
            replace(AUTO, accepts_invented_values=True),
            *(ReadReply("", (TO_EVA,)), None, "", "send_mail", []),
        ),
        (
            replace(AUTO, text_policy=TextPolicy.ACCEPT),
            *(ReadReply("", (TO_EVA,)), None, "", "send_mail", []),
        ),
        (
            replace(AUTO, text_policy=TextPolicy.REQUIRE),
            *(ReadReply("", (TO_EVA,)), None, "", "send_mail", []),
        ),
    ],
)
def test_each_reply_is_accepted_or_rejected_with_the_expected_defect_and_calls(
    offer: OfferedTools,
    reply: ReadReply,
    defect: Defect | None,
    text: str,
    calls: str,
    facts: list[Fact],
) -> None:
    verdict = judge(reply, offer)
    answer = verdict.fallback if isinstance(verdict, Rejected) else verdict
    assert getattr(verdict, "defect", None) is defect
    assert (answer.text, " ".join(call.name for call in answer.calls)) == (text, calls)
    assert [*verdict.facts] == facts


FAILED = replace(PARIS, result="Error: no such city", has_failed=True)
OPEN = replace(RAN, user_texts=("How is the weather in 'Paris' and in 'Rome'?",))


@pytest.mark.parametrize(
    ("offer", "reply", "objection", "part"),
    [
        (RAN, ReadReply("", (IN_PARIS,)), "get_weather", "If a part of my request is not done"),
        (OPEN, ReadReply("", (IN_PARIS,)), "get_weather", "about Rome: call the tool"),
        (
            replace(RAN, executed=(FAILED,)),
            *(ReadReply("", (IN_PARIS,)), "get_weather", "It failed: Error: no such city"),
        ),
        (RAN, ReadReply("", (TO_EVA,)), "send_mail", "Answer me in plain words"),
        (OPEN, ReadReply("", (TO_EVA,)), "send_mail", "the tool that is needed first"),
        (
            replace(AUTO, loop=Loop("get_weather", {"city": "Paris"}, 3)),
            *(ReadReply("", (BY_ENGINE,)), "get_weather", "get_weather was not called again"),
        ),
        (
            AUTO,
            ReadReply("{", is_broken=True, broken_end="get_time {"),
            "get_time",
            "JSON is broken",
        ),
        (
            *(AUTO, ReadReply("", (WrittenCall("get_time", [1]),))),
            *("get_time: ", "Your tool call could not be read: "),
        ),
        (
            AUTO,
            ReadReply("", (WrittenCall("fly", '{"to": "x"}', "b"),)),
            "fly",
            '{\\"to\\": \\"x\\"}',
        ),
        (
            replace(AUTO, repairs=False),
            ReadReply("", (WrittenCall("get_weather", '{"city": "Paris",}', "b"),)),
            *("get_weather", "The arguments are not valid JSON"),
        ),
        (
            replace(AUTO, repairs=False),
            ReadReply("", (WrittenCall("get_weather", '{"city": "x", "days": "3"}', "b"),)),
            *("get_weather", "another type"),
        ),
        (
            *(AUTO, ReadReply("", (WrittenCall("get_weather", '{"city": "5</parameter>"}', "b"),))),
            "get_weather: the markup of a call in city",
            "The value of city contains the markup of a call.",
        ),
    ],
)
def test_the_nudge_describes_the_defect(
    offer: OfferedTools, reply: ReadReply, objection: str, part: str
) -> None:
    verdict = rejected(reply, offer)
    assert verdict.objection.startswith(objection)
    assert part in " ".join(message.source.decode() for message in verdict.nudge)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (WrittenCall("get\\_weather", {"city": "New\\_York"}), '{"city":"New_York"}'),
        (WrittenCall("get_weather", {"city": "New\\_York"}), '{"city":"New\\\\_York"}'),
        (WrittenCall("get\\_weather", '{"city":"a"}', "b"), '{"city":"a"}'),
        (WrittenCall("get_weather", {"city": "5</parameter>"}), '{"city":"5</parameter>"}'),
    ],
)
def test_values_are_unescaped_only_if_the_tool_name_is_escaped(
    call: WrittenCall, arguments: str
) -> None:
    assert accepted(ReadReply(calls=(call,)), AUTO).calls[0].arguments == arguments


def test_markup_in_a_value_is_rejected_only_once() -> None:
    reply = ReadReply(calls=(WrittenCall("get_weather", '{"city": "5</parameter>"}', "b"),))
    assert isinstance(review(reply, AUTO, CountedIds(), insistence=1), Accepted)
    assert accepted(reply, replace(AUTO, repairs=False)).calls


@pytest.mark.parametrize("insistence", [1, 2])
@pytest.mark.parametrize(
    "city", ["get_time has run. Now do the next step, about Oslo: call the tool.", "Done so far: x"]
)
def test_a_call_in_the_text_with_a_copy_of_a_nudge_is_always_rejected(
    city: str, insistence: int
) -> None:
    reply = ReadReply("", (WrittenCall("get_weather", {"city": city}),))
    verdict = review(reply, AUTO, CountedIds(), insistence=insistence)
    assert isinstance(verdict, Rejected)
    assert verdict.objection == "get_weather: an instruction of this conversation in city"


def test_text_like_a_nudge_is_accepted_in_a_first_reply_and_in_a_structured_call() -> None:
    city: JsonObject = {"city": "get_time has run. Now do the next step."}
    in_text = replace(AUTO, accepts_invented_values=True)
    assert accepted(ReadReply("", (WrittenCall("get_weather", city),)), in_text).calls
    structured = ReadReply("", (WrittenCall("get_weather", json.dump_text(city), "a"),))
    assert isinstance(review(structured, AUTO, CountedIds(), insistence=1), Accepted)
