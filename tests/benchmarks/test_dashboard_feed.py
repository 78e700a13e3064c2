from benchmarks.dashboard_feed import Cost, feed_cost

RUNS = 3  # of which the best counts: who collects garbage meanwhile can only add to it


def test_a_flood_makes_a_request_cheaper_to_watch_and_not_dearer() -> None:
    slow, flood = best_cost(40), best_cost(1600)
    assert 300 < slow.size < 3000
    assert flood.size < slow.size / 4
    assert flood.microseconds < slow.microseconds


def best_cost(rate: int) -> Cost:
    costs = (feed_cost(rate, batches=8) for _ in range(RUNS))
    return min(costs, key=lambda one: one.microseconds)
