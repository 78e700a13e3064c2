"""A Ray cluster of one machine with Ray Serve: started, configured, and removed completely.

Nothing is imported from Ray: its programs are run, and its dashboard API is used. All files are in
a separate folder. To end the cluster its process is killed, because `ray stop` would also end every
other cluster of this machine.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import httpx

from benchmarks.load.processes import free_port
from proxy.conversation.json import JsonObject, JsonValue

Ingress: TypeAlias = Literal["python", "haproxy"]

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_SECONDS = 240.0
_POLL_SECONDS = 0.2
_STORE_BYTES = 100_000_000
_APPLICATIONS = "/api/serve/applications/"
_KEY = "sk-of-the-cluster"
NAME = "temper"


class Refused(Exception):
    """Ray Serve reports that it cannot run the application."""


@dataclass(frozen=True)
class Ports:
    """The ports of a cluster on this machine."""

    head: int = field(default_factory=free_port)
    dashboard: int = field(default_factory=free_port)
    client: int = field(default_factory=free_port)
    agent: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    statistics: int = field(default_factory=free_port)

    def left_open(self) -> list[int]:
        """Return the ports that are in use."""
        return [port for port in vars(self).values() if _is_open(port)]


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Ray's API requires `token`. Temper requires the API key `key`, which it reads from a file.
    """

    folder: Path
    ports: Ports
    ingress: Ingress
    token: str
    environment: Mapping[str, str]
    key: str

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def dashboard(self) -> str:
        """The URL of Ray's dashboard."""
        return f"http://127.0.0.1:{self.ports.dashboard}"

    @property
    def key_file(self) -> Path:
        """The path of the key's file on every node."""
        return self.folder / "key"

    @cached_property
    def operator(self) -> httpx.Client:
        """The dashboard's client; it is closed with the cluster."""
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.Client(
            base_url=self.dashboard, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
        )

    def write_file(self, settings: str, name: str = "temper.toml") -> Path:
        """Write a settings file to the path that it has on every node."""
        file = self.folder / name
        file.write_text(settings, encoding="utf-8")
        return file

    def configuration(self, arguments: JsonObject, *others: JsonObject) -> JsonObject:
        """Return the Serve configuration of deploy/ray, plus the applications `others`."""
        variables: JsonObject = {"TEMPER_SERVER__API_KEY_FILE": str(self.key_file)}
        application: JsonObject = {
            "name": NAME,
            "route_prefix": "/",
            "import_path": "proxy.scaling.serve:app",
            "args": {"cpus": 0.1, **arguments},
            "runtime_env": {"env_vars": variables},
        }
        host = "127.0.0.1" if self.ingress == "python" else "0.0.0.0"
        return {
            "proxy_location": "EveryNode",
            "http_options": {"host": host, "port": self.ports.http},
            "applications": [application, *others],
        }

    def apply(self, arguments: JsonObject, *others: JsonObject) -> None:
        """Send the configuration of the application to Serve, as `serve deploy` does."""
        answer = self.operator.put(_APPLICATIONS, json=self.configuration(arguments, *others))
        answer.raise_for_status()

    def deploy(self, arguments: JsonObject, *others: JsonObject) -> None:
        """Send the configuration to Serve, and wait until Temper runs; raises `Refused`."""
        before = self.application().get("last_deployed_time_s")
        self.apply(arguments, *others)
        self.until(lambda: self.application().get("last_deployed_time_s") != before)
        self.until(self.is_running)

    def is_running(self) -> bool:
        """Return whether all replicas run and Temper answers; raises `Refused`."""
        status = self.application()
        if status.get("status") == "DEPLOY_FAILED":
            messages = [
                status.get("message"),
                *(deployment.get("message") for deployment in self._deployments()),
            ]
            raise Refused(" ".join(str(message) for message in messages))
        states = {str(replica.get("state")) for replica in self._replicas()}
        return status.get("status") == "RUNNING" and states == {"RUNNING"} and self._answers()

    def replicas(self, name: str = NAME, of: str = "") -> dict[str, int]:
        """Return the IDs of running replicas, with their process IDs; `of` selects a deployment."""
        return {
            str(replica["replica_id"]): int(str(replica["pid"]))
            for replica in self._replicas(name, of)
            if replica.get("state") == "RUNNING"
        }

    def application(self, name: str = NAME) -> JsonObject:
        """Return Serve's status of an application."""
        applications = self._status().get("applications")
        return _object(_object(applications).get(name))

    def until(self, is_true: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > deadline:
                raise TimeoutError(str(self.application()))
            time.sleep(_POLL_SECONDS)

    def logs(self) -> str:
        """Return the logs of Ray and of the replicas."""
        files = (self.folder / "ray").glob("session_2*/logs/**/*")
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()
        )

    def processes(self) -> dict[int, str]:
        """Return the command lines of the cluster's processes by process ID."""
        commands: dict[int, str] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    if command:  # a process that has ended (a zombie) has none
                        commands[int(folder.name)] = command.decode(errors="replace")
        return commands

    def _status(self) -> JsonObject:
        answer = self.operator.get(_APPLICATIONS)
        answer.raise_for_status()
        return _object(answer.json())

    def _deployments(self, name: str = NAME, of: str = "") -> list[JsonObject]:
        deployments = _object(self.application(name).get("deployments"))
        return [
            _object(deployment) for title, deployment in deployments.items() if title.startswith(of)
        ]

    def _replicas(self, name: str = NAME, of: str = "") -> list[JsonObject]:
        listed = [deployment.get("replicas") for deployment in self._deployments(name, of)]
        return [_object(replica) for each in listed if isinstance(each, list) for replica in each]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def cluster(ingress: Ingress, key: str = _KEY, **environment: str) -> Iterator[Cluster]:
    """Run a cluster on this machine, with one of the two proxies of Serve."""
    folder = Path(tempfile.mkdtemp(prefix="tr-"))  # contains sockets, whose paths must be short
    ports, token = Ports(), secrets.token_hex(32)
    (folder / "token").write_text(token)
    (folder / "key").write_text(key)
    variables = {**_environment(folder, ports, ingress), **environment}
    cluster = Cluster(folder, ports, ingress, token, variables, key)
    log = folder / "start.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(folder, ports),
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        cluster.until(lambda: _is_up(cluster, process))
        yield cluster
    finally:
        _end(cluster, process)
    shutil.rmtree(folder)


def ray_program(name: str) -> Path:
    """Return the path of a program of the extra `ray`."""
    return Path(sys.executable).with_name(name)


def _is_up(cluster: Cluster, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise Refused((cluster.folder / "start.log").read_text(encoding="utf-8", errors="replace"))
    try:
        return cluster.operator.get(_APPLICATIONS).status_code == 200
    except httpx.TransportError:
        return False


def _end(cluster: Cluster, process: "subprocess.Popen[bytes]") -> None:
    """End Serve, then Ray, and then all remaining processes."""
    with contextlib.suppress(httpx.HTTPError):
        cluster.operator.delete(_APPLICATIONS)
    cluster.operator.close()
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while (left := cluster.processes()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    if left or cluster.ports.left_open():
        raise RuntimeError(f"left behind: {left}, ports {cluster.ports.left_open()}")


def _command(folder: Path, ports: Ports) -> list[str]:
    flags = {
        "node-ip-address": "127.0.0.1",
        "port": ports.head,
        "num-cpus": 2,
        "object-store-memory": _STORE_BYTES,
        "temp-dir": folder / "ray",
        "dashboard-host": "127.0.0.1",
        "dashboard-port": ports.dashboard,
        "ray-client-server-port": ports.client,
        "dashboard-agent-listen-port": ports.agent,
        "min-worker-port": 0,
        "max-worker-port": 0,
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    switches = ["--head", "--block", "--disable-usage-stats"]
    return [str(ray_program("ray")), "start", *switches, *options]


def _environment(folder: Path, ports: Ports, ingress: Ingress) -> dict[str, str]:
    """Return the variables that the guide requires on every node, with free ports and folders."""
    lowest = free_port()
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": str(REPOSITORY),
        "RAY_worker_niceness": "0",
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "5",
        "LLAMA_ARG_THREADS": "1",
    }
    if ingress == "python":
        return variables
    home = folder / "h"
    return {
        **variables,
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.statistics),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(home / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(home / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(home),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(home / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(home / "metrics.sock"),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(lowest),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(min(65535, lowest + 200)),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    }


def _is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
