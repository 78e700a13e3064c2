from proxy.guardrails.rescue.values.containers import Open


def test_only_the_brackets_of_json_are_strict() -> None:
    assert Open({}, "}").is_strict
    assert Open([], "]").is_strict
    assert not Open({}, ")").is_strict
    assert not Open([], "}").is_strict


def test_a_run_is_looked_for_behind_some_members_and_again_the_later_the_less_was_found() -> None:
    members = Open([], "]")
    assert [members.looks_for_run() for _ in range(8)] == [False] * 7 + [True]
    members.has_looked(1_000, 500)
    assert members.looks_for_run()
    members.has_looked(1_280, 0)
    assert [members.looks_for_run() for _ in range(12)] == [False] * 11 + [True]
