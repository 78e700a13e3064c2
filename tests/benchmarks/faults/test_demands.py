"""A request is lost by anything but a right answer or a permitted error."""

from dataclasses import replace

import pytest

from benchmarks.faults.demands import Call, Demand, Kind, Seen, Wanted, problem_of
from proxy.conversation.json import JsonObject

PARIS = Call("get_weather", {"city": "Paris"})
OSLO = Call("get_weather", {"city": "Oslo"})
ERROR: JsonObject = {"message": "no luck", "type": "server_error", "param": None, "code": None}

TEXT = Demand((Wanted("It is sunny."),))
CALLED = Demand((Wanted(calls=(PARIS,), reason="tool_calls"),))
FAILING = Demand(failures=frozenset({502, 504}), shown="It is sunny.")


def text(content: str, reason: str = "stop") -> Seen:
    return Seen(200, text=content, reason=reason, is_done=True)


def called(*made: Call) -> Seen:
    return Seen(200, calls=[*made], reason="tool_calls", is_done=True)


def error(status: int) -> Seen:
    return Seen(status, error=ERROR)


def broken_off(shown: str, *made: Call) -> Seen:
    return Seen(200, text=shown, calls=[*made], error=ERROR, is_stream=True)


@pytest.mark.parametrize(
    ("demand", "seen", "kind"),
    [
        (TEXT, text("It is sunny."), Kind.ANSWER),
        (CALLED, called(PARIS), Kind.ANSWER),
        (FAILING, error(504), Kind.ERROR),
        (FAILING, broken_off(""), Kind.ERROR_EVENT),
        (FAILING, broken_off("It is"), Kind.ERROR_EVENT),
        (Demand(), Seen(is_disconnected=True), Kind.LEFT),
    ],
)
def test_permitted_ends_are_not_lost_requests(demand: Demand, seen: Seen, kind: Kind) -> None:
    assert problem_of(demand, seen) == ""
    assert seen.kind is kind


@pytest.mark.parametrize(
    ("demand", "seen", "problem"),
    [
        (TEXT, text("It is sunny"), "another answer"),
        (TEXT, text("It is sunny.", "length"), "another answer"),
        (TEXT, replace(text("It is sunny."), thoughts="Hm."), "another answer"),
        (TEXT, replace(text("It is sunny."), calls=[PARIS]), "another answer"),
        (CALLED, text(""), "another answer"),
        (CALLED, called(OSLO), "another answer"),
        (CALLED, called(PARIS, PARIS), "another answer"),
        (CALLED, Seen(200, calls=[PARIS], is_stream=True), "without an end and without an error"),
        (TEXT, error(502), "an error where none was due"),
        (TEXT, broken_off(""), "an error where none was due"),
        (FAILING, error(500), "another status"),
        (FAILING, text("It is sunny."), "another answer"),
        (FAILING, broken_off("It is rainy."), "before an error the client saw"),
        (FAILING, broken_off("It is", PARIS), "a call before an error"),
        (FAILING, replace(broken_off(""), thoughts="Hm."), "before an error the client saw"),
        (TEXT, replace(text("It is sunny."), problem="two identities"), "two identities"),
    ],
)
def test_any_other_end_counts_as_a_lost_request(demand: Demand, seen: Seen, problem: str) -> None:
    assert problem in problem_of(demand, seen)


def test_recovered_attempt_counts_only_if_reported() -> None:
    demand = replace(CALLED, withheld=(Wanted(),))
    saved = replace(text(""), report={"repairs": "rejected=prose;withheld=1"})
    assert problem_of(demand, saved) == ""
    assert problem_of(demand, text("")) != ""
    assert problem_of(CALLED, saved) != ""


def test_truncated_text_suffices_but_empty_text_does_not() -> None:
    demand = Demand((Wanted("on and ", reason="length"),), shown="on and ", is_endless=True)
    assert problem_of(demand, text("on and on", "length")) == ""
    assert problem_of(demand, text("on", "length")) == ""
    assert problem_of(demand, text("", "length")) != ""
    assert problem_of(demand, text("on and off", "length")) != ""
    failing = replace(demand, failures=frozenset({504}))
    assert problem_of(failing, broken_off("on and on")) == ""
    assert problem_of(failing, broken_off("on and off")) != ""
