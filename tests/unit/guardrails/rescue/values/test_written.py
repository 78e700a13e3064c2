from proxy.guardrails.rescue.values.written import Problem, Unreadable


def test_what_a_broken_off_list_held_does_not_make_a_defect_another_one() -> None:
    assert Unreadable(Problem.CUT_OFF, (1,)) == Unreadable(Problem.CUT_OFF)
