from proxy.observability.kept_exchanges import KeptExchanges


def test_the_oldest_make_room_for_the_latest() -> None:
    kept = KeptExchanges(10)
    for number in range(1, 4):
        kept.keep(number, b"12345")
    assert [kept.has(number) for number in (1, 2, 3)] == [False, True, True]
    assert (kept.line(1), kept.line(3)) == (None, b"12345")
    assert kept.reason(1) == "dropped"


def test_what_is_too_large_costs_nobody_his_place() -> None:
    kept = KeptExchanges(10)
    kept.keep(1, b"12345")
    kept.keep(2, b"12345678901")
    kept.leave_out(3)
    assert kept.has(1)
    assert kept.reason(2) == kept.reason(3) == "too_large"
    assert kept.reason(4) == "not_understood"
