import asyncio

import pytest

from proxy.errors import ProcessFailed
from proxy.processes.followed import Followed
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import State
from proxy.processes.supervisor import Status

HERE = ServerAddress("http://127.0.0.1:1", "key")


def test_whoever_wants_the_server_waits_for_good_news() -> None:
    async def scene() -> None:
        followed = Followed("server")
        waiting = [asyncio.create_task(followed.ready()) for _ in range(3)]
        await asyncio.sleep(0)
        followed.note(Status(State.STARTING))
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        followed.note(Status(State.READY, address=HERE))
        assert await asyncio.gather(*waiting) == [HERE] * 3
        assert await followed.ready() == HERE
        assert followed.status.state is State.READY

    asyncio.run(scene())


def test_bad_news_end_the_waiting() -> None:
    async def scene() -> None:
        followed = Followed("server")
        waiting = asyncio.create_task(followed.ready())
        await asyncio.sleep(0)
        followed.note(Status(State.DOWN, reason="server crashed (SIGABRT)"))
        with pytest.raises(ProcessFailed, match=r"server is down: server crashed \(SIGABRT\)"):
            await waiting

    asyncio.run(scene())
