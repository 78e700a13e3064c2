from msgspec.structs import replace

from proxy.guardrails.loops import Loop, loop_at_end
from proxy.guardrails.transcript import CompletedCall

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
