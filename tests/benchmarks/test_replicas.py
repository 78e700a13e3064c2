from benchmarks.replicas import Outage, Throughput, Turns, markdown

TURNS = [
    Turns(0, is_shared=False, waits=(7.0, 20.5), longest_queue=10),
    Turns(2, is_shared=False, waits=(2.0, 4.0), longest_queue=2),
    Turns(2, is_shared=True, waits=(1.5, 3.0), longest_queue=0),
]
THROUGHPUT = Throughput(((100.0, 99.0), (200.0, 202.0), (100.0, 90.0)))


def test_each_way_to_stand_before_an_engine_has_its_row_with_its_bounds() -> None:
    rows = markdown(TURNS, None).splitlines()[2:]
    assert rows == [
        "| no Temper | 7.0, over 20 | - | 10 | - |",
        "| 2 Tempers | 2.0, 4.0 | 4 | 2 | 2 |",
        "| 2 Tempers, `backend.replicas = 2` | 1.5, 3.0 | 3 | 0 | 0 |",
    ]


def test_the_throughput_is_told_as_the_median_of_the_ratios() -> None:
    assert THROUGHPUT.ratio == 0.99
    told = markdown(TURNS, THROUGHPUT)
    assert "0.990 of the throughput without (99 and 100 requests/s" in told
    assert "3 rounds in turns, 0.90 to 1.01" in told


def test_the_outage_is_told_by_its_slow_requests() -> None:
    told = markdown(TURNS, None, Outage((1.0, 60.0), (2.0, 3.0, 210.0, 4.0), failed=0))
    assert "the longest 210 ms, 1 over 50 ms, the median 3.5 ms; as many without" in told
    assert "the longest 60 ms, 1 over 50 ms, the median 30.5 ms. 0 failed." in told
