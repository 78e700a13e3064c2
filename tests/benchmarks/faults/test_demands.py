"""A request counts as lost unless it ends with a right answer or with a permitted error."""

from dataclasses import replace

import pytest

from benchmarks.faults.demands import Call, Demand, Kind, Received, RightAnswer, problem_of
from proxy.conversation.json import JsonObject

PARIS = Call("get_weather", {"city": "Paris"})
OSLO = Call("get_weather", {"city": "Oslo"})
ERROR: JsonObject = {"message": "no luck", "type": "server_error", "param": None, "code": None}

TEXT = Demand((RightAnswer("It is sunny."),))
CALLED = Demand((RightAnswer(calls=(PARIS,), reason="tool_calls"),))
FAILING = Demand(failures=frozenset({502, 504}), shown="It is sunny.")


def text(content: str, reason: str = "stop") -> Received:
    return Received(200, text=content, reason=reason, is_done=True)


def called(*made: Call) -> Received:
    return Received(200, calls=[*made], reason="tool_calls", is_done=True)


def error(status: int) -> Received:
    return Received(status, error=ERROR)


def broken_off(shown: str, *made: Call) -> Received:
    return Received(200, text=shown, calls=[*made], error=ERROR, is_stream=True)


@pytest.mark.parametrize(
    ("demand", "received", "kind"),
    [
        (TEXT, text("It is sunny."), Kind.ANSWER),
        (CALLED, called(PARIS), Kind.ANSWER),
        (FAILING, error(504), Kind.ERROR),
        (FAILING, broken_off(""), Kind.ERROR_EVENT),
        (FAILING, broken_off("It is"), Kind.ERROR_EVENT),
        (Demand(), Received(is_disconnected=True), Kind.LEFT),
    ],
)
def test_a_permitted_result_does_not_count_as_lost(
    demand: Demand, received: Received, kind: Kind
) -> None:
    assert problem_of(demand, received) == ""
    assert received.kind is kind


@pytest.mark.parametrize(
    ("demand", "received", "problem"),
    [
        (TEXT, text("It is sunny"), "expected"),
        (TEXT, text("It is sunny.", "length"), "expected"),
        (TEXT, replace(text("It is sunny."), thoughts="Hm."), "expected"),
        (TEXT, replace(text("It is sunny."), calls=[PARIS]), "expected"),
        (CALLED, text(""), "expected"),
        (CALLED, called(OSLO), "expected"),
        (CALLED, called(PARIS, PARIS), "expected"),
        (
            CALLED,
            Received(200, calls=[PARIS], is_stream=True),
            "neither an end nor an error",
        ),
        (TEXT, error(502), "an error where none is permitted"),
        (TEXT, broken_off(""), "an error where none is permitted"),
        (FAILING, error(500), "a status not in"),
        (FAILING, text("It is sunny."), "expected"),
        (FAILING, broken_off("It is rainy."), "before an error the client received"),
        (FAILING, broken_off("It is", PARIS), "a call before an error"),
        (FAILING, replace(broken_off(""), thoughts="Hm."), "before an error the client received"),
        (TEXT, replace(text("It is sunny."), problem="two identities"), "two identities"),
    ],
)
def test_a_result_that_is_not_permitted_counts_as_lost(
    demand: Demand, received: Received, problem: str
) -> None:
    assert problem in problem_of(demand, received)


def test_a_withheld_answer_is_permitted_only_if_temper_reports_it() -> None:
    demand = replace(CALLED, withheld=(RightAnswer(),))
    reported = replace(text(""), report={"repairs": "rejected=prose;withheld=1"})
    assert problem_of(demand, reported) == ""
    assert problem_of(demand, text("")) != ""
    assert problem_of(CALLED, reported) != ""


def test_an_endless_text_may_be_truncated_but_not_empty_or_different() -> None:
    demand = Demand((RightAnswer("on and ", reason="length"),), shown="on and ", is_endless=True)
    assert problem_of(demand, text("on and on", "length")) == ""
    assert problem_of(demand, text("on", "length")) == ""
    assert problem_of(demand, text("", "length")) != ""
    assert problem_of(demand, text("on and off", "length")) != ""
    failing = replace(demand, failures=frozenset({504}))
    assert problem_of(failing, broken_off("on and on")) == ""
    assert problem_of(failing, broken_off("on and off")) != ""
