import zipfile
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.doctor.bundle import redacted, write_bundle
from proxy.doctor.finding import Examined, wrong
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings

CANARY = "sk-canary-5up3r"


def test_no_secret_and_no_home_is_in_the_bundle(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "server": {"api_key": CANARY},
            "backend": {"api_key": f"{CANARY}-2", "url": "http://127.0.0.1:1"},
            "profile": {"folder": str(Path.home() / "profiles")},
        }
    )
    found = Examined("forced call", wrong(f"the server said: bad key {CANARY}", "look"))
    write_bundle(tmp_path / "bundle.zip", settings, [found])
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        contents = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(contents) == {"findings.json", "settings.json", "environment.json"}
    assert all(CANARY not in text and str(Path.home()) not in text for text in contents.values())
    assert "~/profiles" in contents["settings.json"]
    told = json.parse(contents["environment.json"])
    assert isinstance(told, dict)
    assert told["python"]


def test_members_with_secret_names_are_hidden_at_any_depth() -> None:
    value = {"a": [{"X-Api-Key": "k", "b": 1}], "headers": {"x": "y"}, "token": ""}
    hidden = {"a": [{"X-Api-Key": "(hidden)", "b": 1}], "headers": "(hidden)", "token": ""}
    assert redacted(value) == hidden  # type: ignore[arg-type]


def test_a_bundle_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot write"):
        write_bundle(tmp_path / "missing" / "bundle.zip", Settings(), [])
