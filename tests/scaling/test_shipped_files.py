"""The files in deploy/ray, used by Ray's programs as in docs/guides/growing.md."""

import re
import subprocess
from collections.abc import Sequence

import pytest
import yaml

from proxy.conversation.json import JsonObject
from tests.scaling.cluster import REPOSITORY, Cluster, ray_program
from tests.scaling.conftest import Served
from tests.timeouts import TIMEOUT_SECONDS

GUIDE = (REPOSITORY / "docs" / "guides" / "growing.md").read_text(encoding="utf-8")
SHIPPED = ("pool", "unit")


def commands() -> list[str]:
    """Return every command of the guide that begins with a program of Ray, with its comment."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("serve ")]


def shipped(name: str) -> JsonObject:
    manifest: JsonObject = yaml.safe_load(
        (REPOSITORY / "deploy" / "ray" / f"{name}.yaml").read_text()
    )
    return manifest


def run(cluster: Cluster, arguments: Sequence[str]) -> str:
    """Run the program `serve` as on a node of the cluster; return its output."""
    ended = subprocess.run(
        [ray_program("serve"), *arguments],
        cwd=cluster.folder,
        env=surroundings(cluster),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def surroundings(cluster: Cluster) -> dict[str, str]:
    """Return the variables that the guide exports, and the address of this cluster."""
    variables = {
        "RAY_ADDRESS": f"127.0.0.1:{cluster.ports.head}",
        "RAY_DASHBOARD_ADDRESS": cluster.dashboard,
        "TEMPER_SERVER__API_KEY_FILE": str(cluster.key_file),
    }
    return {**cluster.environment, **variables}


def test_every_command_of_serve_in_the_guide_is_run_here_or_marked() -> None:
    assert [line.partition("#")[0].strip() for line in commands()] == [
        "serve deploy deploy/ray/pool.yaml",
        "serve status",
        "serve run proxy.scaling.serve:app config=temper.toml replicas=2",
    ]
    marks = [line.partition("# ")[2].partition(":")[0] for line in commands()]
    assert marks == ["tested", "tested", "not run"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_file_has_the_keys_of_the_tested_configuration(served: Served, name: str) -> None:
    configuration = served.cluster.configuration({})
    for here, there in zip(places(shipped(name)), places(configuration), strict=True):
        assert here == there


def places(configuration: JsonObject) -> list[list[str]]:
    """Return the keys of a configuration, and the keys of its only application."""
    (application,) = list_of(configuration["applications"])
    return [sorted(configuration), sorted(object_of(application))]


def list_of(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def object_of(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def test_deploying_the_shipped_pool_file_succeeds_and_shows_no_secret(served: Served) -> None:
    cluster = served.cluster
    if cluster.ingress == "haproxy":
        pytest.skip("the test with the other proxy uses the same programs and files")
    file = cluster.write_file(as_here(served, yaml.safe_dump(shipped("pool"))), "pool.yaml")
    before = cluster.application()["last_deployed_time_s"]
    run(cluster, ["deploy", str(file)])
    cluster.until(lambda: cluster.application()["last_deployed_time_s"] != before)
    cluster.until(cluster.is_running)
    assert len(cluster.replicas()) == 2
    assert served.ask().status_code == 200
    output = run(cluster, ["status"])
    assert "status: RUNNING" in output
    assert "/etc/temper" not in output
    assert cluster.key not in output


def as_here(served: Served, text: str) -> str:
    """Adapt a shipped file to this test: its ports, its files, and fewer reserved CPUs."""
    host = "127.0.0.1" if served.cluster.ingress == "python" else "0.0.0.0"
    for theirs, ours in {
        "/etc/temper/temper.toml": str(served.arguments["config"]),
        "/etc/temper/key": str(served.cluster.key_file),
        "port: 8367": f"port: {served.cluster.ports.http}",
        "host: 0.0.0.0": f"host: {host}",
        "replicas: 2": "replicas: 2\n    cpus: 0.1",
    }.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    return text
