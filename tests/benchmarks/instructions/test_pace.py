"""A backend that waits for the client after each token, without a proxy in between."""

import asyncio

from benchmarks.instructions.pace import Pace, PacedBackend, PacedClient
from benchmarks.load.client import Target
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload


async def test_each_token_is_read_before_the_next_token_is_sent() -> None:
    pace = Pace()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PacedBackend(pace), "127.0.0.1", 0)
    async with server:
        target = Target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        client = await target.connect_as(lambda: PacedClient(pace))
        workload = Workload(Behavior("prose", 30, 1))
        answer = await client.send(target.request(workload.body))
        client.close()
    assert workload.problem(answer) == ""
    assert len(answer.delays) == 30
    assert len(answer.gaps) >= 30  # each token was read on its own
    assert answer.total < 5
