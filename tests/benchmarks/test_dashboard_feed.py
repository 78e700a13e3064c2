from benchmarks.dashboard_feed import feed_cost


def test_a_flood_makes_a_request_cheaper_to_watch_and_not_dearer() -> None:
    slow, flood = feed_cost(40, batches=8), feed_cost(1600, batches=8)
    assert 300 < slow.size < 3000
    assert flood.size < slow.size / 4
    assert flood.microseconds < slow.microseconds
