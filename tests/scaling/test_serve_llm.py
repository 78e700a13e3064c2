"""Two Tempers in front of `ray.serve.llm` with two vLLM replicas, in one Ray cluster.

The tests need an environment with vLLM in addition to the extra `ray`; docs/contributing.md
describes how to create it.
"""

import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import httpx
import psutil
import pytest

from proxy.conversation.json import JsonObject
from tests.engines.asking import (
    CHAT,
    TICKET,
    TICKETS,
    TOOLS,
    USER_MESSAGES,
    Server,
    message,
    through_temper,
)
from tests.engines.model import NAME
from tests.engines.model_folder import write
from tests.fakes.answers import read_answer
from tests.scaling.cluster import Cluster, cluster
from tests.timeouts import TIMEOUT_SECONDS

MISSING = "vLLM is missing: no extra installs it (docs/contributing.md, real engines)"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason=MISSING)

SETTINGS = """
[backend]
url = "http://127.0.0.1:{port}/llm"
kind = "openai"
parallel_requests = 8
"""
SMALL: JsonObject = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
LONG = 1800  # tokens; the engine generates for several seconds
STREAMS = 6
START_SECONDS = 600.0  # seconds until vLLM has started on a busy machine


def language_models(model: str) -> JsonObject:
    """Return the configuration of the Serve application that runs the engines."""
    flags: JsonObject = {
        "max_model_len": 2048,
        "dtype": "float32",
        "enforce_eager": True,
        "max_num_seqs": 8,
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
    }
    little: JsonObject = {"num_cpus": 0.1}
    llm_config: JsonObject = {
        "model_loading_config": {"model_id": NAME, "model_source": model},
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundles": [{"CPU": 0.1}]},
        "deployment_config": {"num_replicas": 2, "ray_actor_options": little},
        "experimental_configs": {"stream_batching_interval_ms": 0},
        "engine_kwargs": flags,
        "runtime_env": {"env_vars": SMALL},
    }
    ingress: JsonObject = {"num_replicas": 1, "ray_actor_options": little}
    return {
        "name": "llm",
        "route_prefix": "/llm",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [llm_config], "ingress_deployment_config": ingress},
    }


@dataclass
class Stream:
    """A streamed chat, which a client reads to its end or closes once `disconnect` is set."""

    client: httpx.Client
    number: int
    read: bytes = b""
    disconnect: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        body: JsonObject = {
            "model": NAME,
            "messages": [message("user", f"Hello {self.number}!")],
            "max_tokens": LONG,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        headers = {"x-session-id": f"stream-{self.number}"}
        with self.client.stream("POST", CHAT, json=body, headers=headers) as answer:
            for piece in answer.iter_bytes():
                self.read += piece
                if self.disconnect.is_set():
                    return

    @property
    def has_begun(self) -> bool:
        return self.read.count(b'"content"') > 20

    @property
    def is_whole(self) -> bool:
        return b"data: [DONE]" in self.read


@dataclass
class Served:
    """Tempers and engines on a cluster."""

    cluster: Cluster
    client: httpx.Client
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(STREAMS))

    @cached_property
    def temper(self) -> Server:
        return Server(self.client, NAME)

    def engines(self) -> dict[str, int]:
        """Return the replica IDs of the engines, each with its process ID."""
        return self.cluster.replicas("llm", "LLMServer")

    def work(self) -> float:
        """Return the CPU seconds that the engine processes have used so far."""
        seconds = 0.0
        for number in self.cluster.processes():
            try:
                process = psutil.Process(number)
                if "EngineCore" in " ".join((process.name(), *process.cmdline())):
                    seconds += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return seconds

    def work_until_rest(self) -> float:
        """Wait until the CPU seconds of `work` no longer grow, and return them."""
        last = -1.0
        while (now := self.work()) - last > 0.05:
            last = now
            threading.Event().wait(0.5)
        return now


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = write(tmp_path_factory.mktemp("model") / NAME)
    variables = {name: str(value) for name, value in SMALL.items()}
    with cluster("python", **variables) as ray:
        settings = ray.write_file(SETTINGS.format(port=ray.ports.http))
        ray.deploy({"config": str(settings), "replicas": 2}, language_models(str(model)))
        ray.until(lambda: ray.application("llm").get("status") == "RUNNING", START_SECONDS)
        with httpx.Client(
            base_url=ray.url,
            headers={"authorization": f"Bearer {ray.key}"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        ) as client:
            running = Served(ray, client)
            with running.pool:
                yield running


def test_calls_of_vllm_replicas_satisfy_their_schemas(served: Served, *, stream: bool) -> None:
    for user_message, name in USER_MESSAGES[::4]:
        answer = served.temper.ask(user_message, TOOLS, stream=stream)
        assert through_temper(answer).is_one_of(TOOLS, name), answer.body
    for user_message in TICKETS:
        answer = served.temper.ask(user_message, (TICKET,), stream=stream, tool_choice="required")
        assert through_temper(answer).is_one_of((TICKET,)), answer.body


def test_the_window_of_the_engines_is_listed_and_enforced(served: Served) -> None:
    (listed,) = served.client.get("/v1/models").json()["data"]
    assert listed["engine"]["name"] == "Ray Serve LLM"
    assert listed["context_window"] == 2048
    answer = read_answer(served.temper.post([message("user", "word " * 6000)]))
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"


def test_a_client_disconnect_stops_the_generation_of_vllm(served: Served) -> None:
    before = served.work_until_rest()
    whole = Stream(served.client, 0)
    whole.run()
    assert whole.is_whole
    full = served.work_until_rest() - before
    abandoned = Stream(served.client, 0)
    abandoned.disconnect.set()
    abandoned.run()
    assert served.work_until_rest() - before - full < full / 2


def test_only_the_streams_of_a_killed_engine_end_with_an_error(served: Served) -> None:
    streams = [Stream(served.client, number) for number in range(STREAMS)]
    running = [served.pool.submit(stream.run) for stream in streams]
    served.cluster.until(lambda: all(stream.has_begun for stream in streams))
    killed, number = next(iter(served.engines().items()))
    os.kill(number, signal.SIGKILL)
    assert served.temper.ask("Hello!").error is None  # the stream of the engine that still runs
    for future in running:
        future.result()
    broken = [stream for stream in streams if not stream.is_whole]
    assert 0 < len(broken) < STREAMS
    assert all(b'"backend_unavailable"' in stream.read for stream in broken)
    served.cluster.until(
        lambda: len(served.engines()) == 2 and killed not in served.engines(), START_SECONDS
    )
    assert served.temper.ask("Hello!").error is None
