from msgspec.structs import replace

from proxy.guardrails.loops import Loop, is_stuck, loop_at_end
from proxy.guardrails.transcript import CompletedCall, Rounds

LOOK = CompletedCall("look", {"x": 1}, "seen", has_failed=False)


def test_the_same_call_with_the_same_result_three_times_is_a_loop() -> None:
    assert loop_at_end([LOOK] * 3) == Loop("look", {"x": 1}, 3)
    assert loop_at_end([replace(LOOK, name="go"), *[LOOK] * 4]) == Loop("look", {"x": 1}, 4)
    assert loop_at_end([LOOK] * 2, limit=2) == Loop("look", {"x": 1}, 2)


def test_anything_else_is_none() -> None:
    assert loop_at_end([]) is None
    assert loop_at_end([LOOK] * 2) is None
    assert loop_at_end([LOOK, replace(LOOK, result="other"), LOOK, LOOK]) is None
    assert loop_at_end([LOOK, LOOK, replace(LOOK, arguments={"x": 2})]) is None


def test_calls_that_nobody_can_read_are_no_loop() -> None:
    assert loop_at_end([replace(LOOK, arguments=None)] * 3) is None


def test_what_the_user_asks_for_again_is_no_loop() -> None:
    later = replace(LOOK, turn=1)
    assert loop_at_end([LOOK, LOOK, later, later]) is None
    assert loop_at_end([LOOK, later, later, later]) == Loop("look", {"x": 1}, 3)


def test_a_job_that_is_polled_is_no_loop() -> None:
    assert loop_at_end([replace(LOOK, result="status: running")] * 9) is None


def test_many_rounds_are_too_many_only_where_the_last_found_nothing_new() -> None:
    assert not is_stuck(Rounds(400))
    assert not is_stuck(Rounds(50, 4))
    assert is_stuck(Rounds(50, 5))
    assert not is_stuck(Rounds(49, 49))
    assert is_stuck(Rounds(2, 1), most=2)
    assert not is_stuck(Rounds(2, 0), most=2)
