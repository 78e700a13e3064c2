"""docs/architecture.md lists exactly the modules that a plain chat executes."""

import contextlib
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import httpx

import proxy
from proxy.api.hosted import open_app
from proxy.api.server import listen, serving, url_of
from proxy.settings import Settings
from tests.fakes import sse
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS, until

ROOT = Path(proxy.__file__).parent.parent
PAGE = ROOT / "docs/architecture.md"
MOST_MODULES = 64  # the number of modules may only decrease
_LAST = "proxy/observability/logs.py"
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}


@contextlib.contextmanager
def executed_modules() -> Iterator[set[str]]:
    """Collect the modules of `proxy` whose functions this thread executes in the block."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            modules.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(None)
        paths = {Path(name) for name in modules if name.startswith(str(ROOT / "proxy"))}
        modules.clear()
        modules.update(str(path.relative_to(ROOT)) for path in paths)


@asynccontextmanager
async def temper(backend_url: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Serve with the default settings."""
    settings = Settings.model_validate({"backend": {"url": backend_url}})
    with contextlib.closing(listen("127.0.0.1", 0)) as socket:
        async with (
            open_app(settings) as app,
            serving(app, socket, 1),
            httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client,
        ):
            client.base_url = httpx.URL(url_of(socket))
            yield client


async def test_the_page_lists_the_modules_of_a_plain_chat() -> None:
    reply = Script((sse.says("Hi", " there."),))
    path = PAGE.read_text("utf-8").partition("## A plain chat")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(proxy/[a-z_/]+\.py)`", path, re.MULTILINE)
    backend = ScriptedBackend(*[reply] * 4)
    async with listening(backend) as engine, temper(engine.url) as client:
        # the first requests also import modules, fill caches and look up the model
        for _ in range(3):
            await client.post("/v1/chat/completions", json=BODY)
        with executed_modules() as executed:
            answer = await client.post("/v1/chat/completions", json=BODY)
            # a request executes this module after its response
            await until(lambda: str(ROOT / _LAST) in executed)
    assert "Hi" in answer.text
    assert sorted(executed.difference(listed)) == [], "not on the page, but executed"
    assert sorted(set(listed) - executed) == [], "on the page, but not executed"
    assert len(listed) <= MOST_MODULES
