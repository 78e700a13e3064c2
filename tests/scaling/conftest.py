"""Ray clusters on this machine with Temper, each with one of the two proxies of Serve.

They need the extra `ray`, which nothing here imports; without it these tests are skipped.
"""

import importlib.util
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pytest

from proxy.conversation.json import JsonObject
from tests.fakes.paced_engine import PacedEngine
from tests.fakes.sockets import listening_in_thread
from tests.scaling.cluster import Cluster, Ingress, cluster
from tests.timeouts import TIMEOUT_SECONDS

MISSING = "Ray is missing: the extra `ray` brings it"
SETTINGS = """
[backend]
url = "{engine}"
kind = "openai"
parallel_requests = 32
[server]
max_waiting = 1
port = 1
grace_seconds = 60
keep_alive_seconds = 1
"""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests here (pytest calls this for no other test); skip them without Ray."""
    item.add_marker(pytest.mark.ray)
    if importlib.util.find_spec("ray") is None:
        item.add_marker(pytest.mark.skip(reason=MISSING))


@dataclass
class Served:
    """Temper on a cluster, in front of an engine."""

    cluster: Cluster
    engine: PacedEngine
    arguments: JsonObject
    client: httpx.Client
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(64))

    def ask(self, text: str = "Hi", **headers: str) -> httpx.Response:
        """Send a request without streaming."""
        return self.client.post("/v1/chat/completions", json=body_of(text), headers=headers)

    def stream(self, text: str, **headers: str) -> bytes:
        """Request a stream and return what arrives, however it ends."""
        read = b""
        stream = self.client.stream(
            "POST", "/v1/chat/completions", json=body_of(text, stream=True), headers=headers
        )
        try:
            with stream as answer:
                for piece in answer.iter_bytes():
                    read += piece
        except httpx.TransportError:  # also before the first byte, as from a replica that is killed
            pass
        return read

    def replica_of(self, request_id: str) -> str:
        """Return which replica wrote the log line of a request."""
        pattern = re.compile(rf'"id": "{request_id}".*"replica": "([^"]+)"')
        self.cluster.until(lambda: pattern.search(self.cluster.logs()) is not None)
        (replica,) = set(pattern.findall(self.cluster.logs()))
        return str(replica)


def body_of(text: str, **members: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **members}


@pytest.fixture(scope="session", params=["python", "haproxy"])
def ray_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster; HAProxy identifies conversations by their session header."""
    ingress: Ingress = request.param
    with cluster(ingress, RAY_SERVE_HAPROXY_BALANCE_ALGORITHM="hdr(x-session-id)") as running:
        yield running


@pytest.fixture(scope="session")
def served(ray_cluster: Cluster) -> Iterator[Served]:
    """Run two Tempers in front of one engine."""
    engine = PacedEngine()
    with (
        listening_in_thread(engine) as url,
        httpx.Client(
            base_url=ray_cluster.url,
            headers={"authorization": f"Bearer {ray_cluster.key}"},
            timeout=TIMEOUT_SECONDS,
            limits=httpx.Limits(max_connections=200),
            trust_env=False,
        ) as client,
    ):
        arguments: JsonObject = {
            "config": str(ray_cluster.write_file(SETTINGS.format(engine=url))),
            "replicas": 2,
            "affinity": "session",
            "scraping": str(ray_cluster.folder / "scraping"),
        }
        ray_cluster.deploy(arguments)
        served = Served(ray_cluster, engine, arguments, client)
        with served.pool:
            yield served


# Clusters and clients are shared by all tests and closed after the last test, so the checks for
# open connections do not apply.


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> None:
    """Disable the check in this folder."""


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> None:
    """Disable the check in this folder."""
