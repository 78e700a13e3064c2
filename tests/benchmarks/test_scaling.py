import httpx

from benchmarks.load.client import Target
from benchmarks.load.figures import Figures
from benchmarks.scaling import departures
from benchmarks.scaling.cluster import Ports
from benchmarks.scaling.measuring import PLAIN, table


def figures(rate: float, first: float, delay: float) -> Figures:
    return {
        "requests_per_second": rate,
        "p50": 1.0,
        "first_byte_1": first,
        "first_byte_8": 2 * first,
        "delay_1": delay,
        "delay_8": delay,
        "errors": 0.0,
        "load": 1.5,
        "left_amid": first,
        "left_amid_most": 150 * delay,
        "left_before": 3.0,
        "left_before_most": 210.0,
    }


def test_the_table_tells_which_goals_were_met() -> None:
    found = {
        PLAIN: figures(1000, 2, 0.25),
        "python": {**figures(100, 20, 2), "replaced": 9.0},
        "haproxy": {**figures(700, 4, 1), "replaced": 11.0},
    }
    shown = table(found)
    assert "| calls, 16 at once: requests/s | 1,000 | 100 | 700 |" in shown
    assert "| HAProxy: share of plain's requests/s | >= 0.6 | 0.70 | yes |" in shown
    assert "| Python proxy: share of plain's requests/s | >= 0.12 | 0.10 | **no** |" in shown
    assert "| HAProxy: first byte, added | <= 3 ms | 2.00 | yes |" in shown
    assert "| HAProxy: delay per token, added | <= 0.5 ms | 0.75 | **no** |" in shown
    assert "| Python proxy: first byte, added | <= 25 ms | 18.00 | yes |" in shown
    assert "| HAProxy: a client leaves amid a stream | <= 200 ms | 150.00 | yes |" in shown
    assert "| HAProxy: it leaves before the first byte | <= 4500 ms | 210.00 | yes |" in shown
    assert "| Python proxy: the same | <= 200 ms | 210.00 | **no** |" in shown
    assert "| a killed replica has a successor after, s, most of 3 | - | 9.0 | 11.0 |" in shown
    assert "| HAProxy: a killed replica is replaced | <= 10 s | 11.00 | **no** |" in shown


def test_an_engine_knows_when_its_client_has_left() -> None:
    with departures.engine() as engine:
        found = departures.of_clients(Target(engine.url), engine, times=2)
    assert 0 <= found["left_amid"] <= found["left_amid_most"]
    assert 0 <= found["left_before"] <= found["left_before_most"]


def test_an_engine_that_clients_leave_answers_others() -> None:
    with departures.engine() as engine:
        models = httpx.get(f"{engine.url}/v1/models", trust_env=False).json()
        mark = {"role": "user", "content": "[[call]]"}
        body = {"messages": [mark]}
        answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, trust_env=False).json()
    assert models["data"][0]["id"]
    assert answer["choices"][0]["message"]["tool_calls"]


def test_a_port_on_which_nobody_listens_is_not_left_open() -> None:
    assert Ports().left_open() == []
