"""docker-compose.yml, validated with the schema of Compose."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.test_repository import REPOSITORY

pytestmark = pytest.mark.deploying


def check(file: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip(
        "check_jsonschema", reason="check-jsonschema is missing: the extra `deploying` brings it"
    )
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, str(file)], check=False, capture_output=True, text=True)


def test_compose_file_matches_its_schema() -> None:
    checked = check(REPOSITORY / "docker-compose.yml")
    assert checked.returncode == 0, checked.stdout


def test_compose_schema_detects_a_misspelled_key(tmp_path: Path) -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text("utf-8")
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(text.replace("stop_grace_period", "stop_grace_time"), "utf-8")
    checked = check(wrong)
    assert checked.returncode == 1
    assert "stop_grace_time" in checked.stdout


def test_every_temper_shares_a_network_with_its_engines() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))["services"]
    networks = {name: {*service.get("networks", ["default"])} for name, service in services.items()}
    addresses = {
        name: re.findall(r"//([\w-]+):", "".join(map(str, urls)))
        for name, service in services.items()
        if (
            urls := [
                u for key, u in service.get("environment", {}).items() if "BACKEND__URL" in key
            ]
        )
    }
    assert len(addresses) == 6
    for temper, engines in addresses.items():
        assert engines
        assert all(networks[temper] & networks[engine] for engine in engines)
    # with `network_mode: service:`, the network is lost when the other container restarts
    assert not any("network_mode" in service for service in services.values())
