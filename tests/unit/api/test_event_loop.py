import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from proxy.api.event_loop import delay_collection, freeze_objects, loop_factory


def test_uvloop_is_used_if_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    make = loop_factory()
    assert make is not None
    loop = make()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def test_asyncio_is_used_if_uvloop_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert isinstance(runner.get_loop(), asyncio.SelectorEventLoop)


@pytest.fixture
def default_threshold() -> Iterator[int]:
    """Start with Python's default threshold and restore the previous one."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield 700
    gc.unfreeze()
    gc.set_threshold(*before)


def test_the_function_freeze_objects_freezes_objects_and_raises_the_gc_threshold(
    default_threshold: int,
) -> None:
    freeze_objects()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > default_threshold


def test_the_function_delay_collection_raises_the_gc_threshold_more_than_100_times(
    default_threshold: int,
) -> None:
    delay_collection()
    assert gc.get_threshold()[0] > 100 * default_threshold


LIGHT = """
import sys
from proxy.api.event_loop import import_libraries
import_libraries()
import fastapi, httpx, pydantic
assert "pygments" not in sys.modules and "httpx._main" not in sys.modules
class Plain(pydantic.BaseModel):
    pass
assert Plain.__pydantic_complete__
app = fastapi.FastAPI()
@app.get("/items")
def items(number: int = 7) -> list[int]:
    return [number]
print(app.openapi()["paths"]["/items"]["get"]["operationId"])
"""


def test_libraries_are_imported_without_their_unused_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("items_items_get\n", "")
