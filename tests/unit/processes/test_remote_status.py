import asyncio

import pytest

from proxy.errors import ProcessFailed
from proxy.processes.process import ServerAddress
from proxy.processes.remote_status import RemoteStatus
from proxy.processes.restarts import State
from proxy.processes.supervisor import Status

HERE = ServerAddress("http://127.0.0.1:1", "key")


def test_whoever_wants_the_server_waits_for_good_news() -> None:
    async def scene() -> None:
        remote = RemoteStatus("server")
        waiting = [asyncio.create_task(remote.ready()) for _ in range(3)]
        await asyncio.sleep(0)
        remote.note(Status(State.STARTING))
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        remote.note(Status(State.READY, address=HERE))
        assert await asyncio.gather(*waiting) == [HERE] * 3
        assert await remote.ready() == HERE
        assert remote.status.state is State.READY

    asyncio.run(scene())


def test_bad_news_end_the_waiting() -> None:
    async def scene() -> None:
        remote = RemoteStatus("server")
        waiting = asyncio.create_task(remote.ready())
        await asyncio.sleep(0)
        remote.note(Status(State.DOWN, reason="server crashed (SIGABRT)"))
        with pytest.raises(ProcessFailed, match=r"server is down: server crashed \(SIGABRT\)"):
            await waiting

    asyncio.run(scene())
