import pytest

from proxy.agents.guard_parts import ErrorTracker, ReplyValidator, StepEnforcer
from proxy.conversation.json import JsonObject
from proxy.tools.executor import Outcome, Status
from temper import Prerequisite, ToolCall, Workflow
from tests.fakes.agents import get_weather, report

LEAKED = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
WEATHER = ToolCall("a", "get_weather", '{"city": "Oslo"}')
REPORT = ToolCall("b", "report", '{"text": "x"}')
RULES = Workflow(required_steps=("get_weather",), terminal_tools=("report",))


def completion_with_call(name: str, arguments: str) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    calls: JsonObject = {"index": 0, "id": "a", "type": "function", "function": function}
    message: JsonObject = {"content": None, "tool_calls": [calls]}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def test_a_reply_validator_rescues_a_call_in_text_and_reports_an_invalid_call() -> None:
    validator = ReplyValidator([get_weather])
    (call,) = validator.check(LEAKED).calls
    assert (call.name, call.arguments) == ("get_weather", '{"city":"Oslo"}')
    assert validator.check("It is fine.").text == "It is fine."
    wrong = validator.check(completion_with_call("get_weather", '{"town": 1}'))
    assert (wrong.is_fit, wrong.defect) == (False, "invalid_arguments")
    assert "city" in str(wrong.nudge)
    unknown = validator.check(completion_with_call("get_time", "{}"))
    assert unknown.defect == "unknown_tool"
    assert "Available: get_weather" in str(unknown.nudge)


def test_a_terminal_tool_is_accepted_only_if_the_required_step_is_in_the_history() -> None:
    validator = ReplyValidator([get_weather, report], workflow=RULES)
    premature = validator.check(completion_with_call("report", '{"text": "x"}'))
    assert premature.defect == "step_missing"
    done: list[JsonObject] = [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "21 degrees"},
    ]
    assert validator.check(completion_with_call("report", '{"text": "x"}'), done).is_fit


def test_an_empty_list_of_tools_and_an_error_response_raise_value_error() -> None:
    with pytest.raises(ValueError, match="tools is empty"):
        ReplyValidator([])
    with pytest.raises(ValueError, match="too hot"):
        ReplyValidator([get_weather]).check({"error": {"message": "too hot"}})


def test_a_step_enforcer_rejects_a_call_until_the_required_step_succeeded() -> None:
    steps = StepEnforcer(RULES)
    premature = steps.check([REPORT])
    assert (premature.defect, steps.pending, steps.completed) == (
        "step_missing",
        ("get_weather",),
        (),
    )
    assert "get_weather" in str(premature.nudge)
    steps.record(WEATHER, failed=True)
    assert steps.check([REPORT]).nudge != premature.nudge  # the second nudge is stronger
    steps.record(WEATHER)
    assert steps.check([REPORT]).calls == (REPORT,)
    assert (steps.pending, steps.completed) == ((), ("get_weather",))


def test_a_step_enforcer_applies_prerequisites_and_refuses_unsatisfiable_rules() -> None:
    rule = Prerequisite("report", "get_weather", "city")
    steps = StepEnforcer(Workflow(prerequisites=(rule,)))
    steps.record(WEATHER)
    assert not steps.check([REPORT]).is_fit
    same = ToolCall("c", "report", '{"text": "x", "city": "Oslo"}')
    assert steps.check([same]).is_fit
    with pytest.raises(ValueError, match="can never be called"):
        StepEnforcer(Workflow(prerequisites=(Prerequisite("a", "a"),)))


def test_an_error_tracker_is_exhausted_after_two_failures_in_a_row() -> None:
    validator, errors = ReplyValidator([get_weather]), ErrorTracker(rejected=2, failed_rounds=2)
    wrong = validator.check(completion_with_call("get_weather", "{}"))
    for checked in (wrong, validator.check(LEAKED), wrong):
        errors.take(checked)
    assert (errors.rejected, errors.is_exhausted) == (1, False)
    errors.take(wrong)
    assert errors.is_exhausted
    errors.take(validator.check(LEAKED))
    failed = Outcome(WEATHER, "Error: no", Status.FAILED)
    for outcome in (failed, Outcome(WEATHER, "x", Status.FAILED, counted=False), failed):
        errors.finish_round([outcome])
    assert (errors.failed_rounds, errors.is_exhausted) == (1, False)
    errors.finish_round([failed])
    assert errors.is_exhausted


def test_a_validator_without_rescue_accepts_only_structured_calls() -> None:
    checked = ReplyValidator([get_weather], rescue=False).check(LEAKED)
    assert (checked.calls, checked.is_fit) == ((), False)
    assert checked.nudge
    call = completion_with_call("get_weather", '{"city": "Oslo"}')
    assert len(ReplyValidator([get_weather], rescue=False).check(call).calls) == 1


def test_a_step_enforcer_is_exhausted_after_its_attempts_until_it_is_reset() -> None:
    steps = StepEnforcer(RULES, attempts=2)
    steps.check([REPORT])
    assert not steps.is_exhausted
    steps.check([REPORT])
    exhausted = [steps.is_exhausted]
    assert steps.summary_hint == "Completed steps: none. Still required: get_weather."
    steps.reset()
    assert [*exhausted, steps.is_exhausted] == [True, False]
    steps.record(WEATHER)
    assert steps.check([REPORT]).is_fit
    assert steps.summary_hint == "Completed steps: get_weather."
    with pytest.raises(ValueError, match="attempts must be at least 1"):
        StepEnforcer(RULES, attempts=0)
