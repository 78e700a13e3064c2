"""Fixtures of the fault suite, and the table of its results.

`pytest tests/faults --fault-table docs/faults.md` writes the results; with `--fault-subject forge`
the tests that need no access to Temper's internals run against that peer and fill its column.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from benchmarks.load.peers import NotAvailable, default_folder, version
from tests.faults.proxies import TEMPER, Wire
from tests.faults.report import Report
from tests.faults.rows import ROWS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-table", type=Path, help="write the table of results to this file")
    parser.addoption("--fault-subject", default=TEMPER, choices=(TEMPER, "forge"))


def pytest_configure(config: pytest.Config) -> None:
    subject = config.getoption("--fault-subject", TEMPER)
    if subject != TEMPER:
        try:
            version(default_folder(), subject)
        except NotAvailable as problem:
            raise pytest.UsageError(f"{subject}: {problem}") from problem
    config.stash[REPORT] = Report(subject)
    config.pluginmanager.register(FaultRecorder(config.stash[REPORT]))


REPORT = pytest.StashKey[Report]()


class FaultRecorder:
    """Records the result of each test marked with `fault`, also in other folders.

    Worker processes send the result with the report of the test to the process that writes the
    table.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        result = yield
        if not result.skipped and (call.when == "call" or result.failed):
            rows = [("fault", str(mark.args[0])) for mark in item.iter_markers("fault")]
            result.user_properties = [*result.user_properties, *rows]
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, row in report.user_properties:
            if name == "fault":
                self._report.note(str(row), passed=report.passed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--fault-table", None)
    if path is not None and not hasattr(session.config, "workerinput"):
        session.config.stash[REPORT].write(path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = {row.id for row in ROWS}
    for item in items:
        for mark in item.iter_markers("fault"):
            assert mark.args[0] in known, f"{item.nodeid}: there is no row {mark.args[0]}"


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> str:
    """The name of the subject; tests with this fixture can also run against peers."""
    return str(request.config.getoption("--fault-subject", TEMPER))


@pytest.fixture(params=list(Wire), ids=[wire.value for wire in Wire])
def wire(request: pytest.FixtureRequest) -> Wire:
    """The protocol of the backend."""
    chosen: Wire = request.param
    return chosen


@pytest.fixture(autouse=True)
def skip_tests_of_temper_only(request: pytest.FixtureRequest) -> None:
    """Skip tests of Temper's internals and of Ollama's protocol if the subject is a peer."""
    if request.config.getoption("--fault-subject", TEMPER) == TEMPER:
        return
    if "subject" not in request.fixturenames:
        pytest.skip("about Temper's inside")
    if "wire" in request.fixturenames and request.getfixturevalue("wire") is Wire.OLLAMA:
        pytest.skip("peers are tested with OpenAI's language")
