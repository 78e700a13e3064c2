import asyncio
import sys

import pytest

from proxy.api.loop import loop_factory


def test_the_faster_loop_is_chosen_where_there_is_one() -> None:
    pytest.importorskip("uvloop")
    make = loop_factory()
    assert make is not None
    loop = make()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def test_without_it_asyncio_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert type(runner.get_loop()).__module__.startswith("asyncio")
