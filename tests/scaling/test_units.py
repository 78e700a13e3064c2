"""Units on a real Ray Serve: each replica starts and ends a llama-server of its own."""

import os
import re
import signal
from pathlib import Path

import httpx
import pytest

from proxy.conversation.json import JsonObject
from tests.fakes.llama import build_model
from tests.scaling.cluster import Cluster, Refused
from tests.scaling.conftest import body_of
from tests.timeouts import TIMEOUT_SECONDS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "scripted.gguf")


@pytest.fixture(scope="module")
def units(ray_cluster: Cluster, model: Path) -> tuple[Cluster, JsonObject]:
    """Run two units."""
    if ray_cluster.ingress == "haproxy":
        pytest.skip("behind HAProxy units are not run")
    settings = f'[model]\npath = "{model}"\nslots = 2\n'
    arguments: JsonObject = {
        "config": str(ray_cluster.write_file(settings, "unit.toml")),
        "replicas": 2,
    }
    ray_cluster.deploy(arguments)
    return ray_cluster, arguments


def engines(cluster: Cluster) -> dict[int, int]:
    """Return the llama-server processes with their parents."""
    pattern = re.compile(r"\) \S (\d+) ")
    engines = {}
    for number, command in cluster.processes().items():
        if "scripted.gguf" in command:
            stat = pattern.search(Path(f"/proc/{number}/stat").read_text())
            assert stat is not None
            engines[number] = int(stat[1])
    return engines


def ask(cluster: Cluster, session: str) -> httpx.Response:
    return httpx.post(
        f"{cluster.url}/v1/chat/completions",
        json=body_of("[[weather]]"),
        headers={"authorization": f"Bearer {cluster.key}", "x-session-id": session},
        timeout=TIMEOUT_SECONDS,
        trust_env=False,
    )


def test_killing_a_replica_ends_its_llama_server_and_both_are_replaced(
    units: tuple[Cluster, JsonObject],
) -> None:
    cluster, _ = units
    assert {ask(cluster, f"session-{number}").status_code for number in range(6)} == {200}
    before = cluster.replicas()
    assert len(engines(cluster)) == 2
    killed, number = next(iter(before.items()))
    remaining = {engine for engine, parent in engines(cluster).items() if parent == number}
    os.kill(number, signal.SIGKILL)
    cluster.until(lambda: remaining.isdisjoint(engines(cluster)))
    cluster.until(lambda: len(cluster.replicas()) == 2 and killed not in cluster.replicas())
    cluster.until(lambda: len(engines(cluster)) == 2)
    assert {ask(cluster, f"session-{number}").status_code for number in range(6)} == {200}


def test_a_broken_model_file_fails_the_deployment_with_one_sentence(
    units: tuple[Cluster, JsonObject], model: Path
) -> None:
    cluster, _ = units
    broken = model.with_name("broken.gguf")
    broken.write_bytes(model.read_bytes()[:-4096])
    file = cluster.write_file(f'[model]\npath = "{broken}"\n', "broken.toml")
    with pytest.raises(Refused, match="incomplete model file: download it again"):
        cluster.deploy({"config": str(file), "replicas": "auto", "most": 2})
