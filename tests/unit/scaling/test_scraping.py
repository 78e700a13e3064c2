import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from proxy.api.app import ServerOptions, create_app
from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.scaling.scraping import MetricsOnly, publish_address, serve_metrics
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.loopback import has_ipv6

WITH_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


def address_in(folder: Path) -> str:
    """Return the only address in a folder, as Prometheus reads it."""
    (file,) = folder.glob("*.json")
    groups = json.parse(file.read_bytes())
    assert isinstance(groups, list)
    assert isinstance(groups[0], dict)
    targets = groups[0]["targets"]
    assert isinstance(targets, list)
    return str(targets[0])


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=WITH_IPV6)])
async def test_the_published_address_serves_only_metrics(tmp_path: Path, host: str) -> None:
    options = ServerOptions()
    app = create_app(options.services_for(ScriptedBackend()), options, Observers((), Metrics()))
    async with (
        serve_metrics(app, tmp_path / "made", host),
        httpx.AsyncClient(trust_env=False) as client,
    ):
        url = f"http://{address_in(tmp_path / 'made')}"
        response = await client.get(f"{url}/metrics")
        assert response.status_code == 200
        assert "temper_requests_running" in response.text
        assert (await client.get(f"{url}/v1/models")).status_code == 404
    assert [*(tmp_path / "made").iterdir()] == []


async def test_a_lifespan_scope_is_not_passed_to_the_application() -> None:
    async def app(*_: object) -> None:
        pytest.fail("the application is asked")

    client = HandMadeClient()
    await MetricsOnly(app)({"type": "lifespan"}, client.receive, client.send)
    assert client.got == []


def test_a_scraping_folder_that_cannot_be_created_raises_invalid_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "metrics"
    problem = f"^scraping: .* not {folder}: Not a dir"
    with pytest.raises(InvalidConfiguration, match=problem), publish_address(folder, "127.0.0.1:1"):
        pass


def test_publish_address_removes_the_files_of_exited_processes_and_no_other_files(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    (tmp_path / f"temper-{gone.pid}.json").write_text("[]")
    kept = {f"temper-{os.getppid()}.json", "temper-own.json", "other.json"}
    for name in kept:
        (tmp_path / name).write_text("[]")
    with publish_address(tmp_path, "127.0.0.1:1") as file:
        assert {path.name for path in tmp_path.iterdir()} == {*kept, file.name}
    assert {path.name for path in tmp_path.iterdir()} == kept
