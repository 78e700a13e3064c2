"""F40: all secrets in the settings, and all outputs that could reveal them."""

import zipfile
from pathlib import Path

import pytest

from proxy.api.assembly import server_options_of
from proxy.api.observing import secrets_of
from proxy.doctor.report import write_bundle
from proxy.doctor.target import CheckResult, fail
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings, load_settings

pytestmark = pytest.mark.fault("F40")

CANARIES = [f"canary-{name}-0123456789" for name in ("server", "owner", "backend", "header")]
SERVER, OWNER, BACKEND, HEADER = CANARIES
FILE = """
[server]
api_key = "${SERVERS_KEY}"
api_keys_file = "%(folder)s/keys"
[backend]
url = "http://127.0.0.1:1"
api_key_file = "%(folder)s/backends_key"
headers = { x-team = "${TEAMS_HEADER}" }
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("SERVERS_KEY", SERVER)
    monkeypatch.setenv("TEAMS_HEADER", HEADER)
    (tmp_path / "keys").write_text(f"someone {OWNER}\n", encoding="utf-8")
    (tmp_path / "backends_key").write_text(BACKEND, encoding="utf-8")
    file = tmp_path / "temper.toml"
    file.write_text(FILE % {"folder": tmp_path}, encoding="utf-8")
    return load_settings(file)


def canaries_in(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


def test_every_setting_of_a_secret_type_is_covered_by_these_tests(settings: Settings) -> None:
    assert set(secrets_of(settings)) == set(CANARIES)


def test_settings_show_no_secret_as_a_repr_as_text_or_as_json(settings: Settings) -> None:
    shown = (settings, settings.model_dump_json(), server_options_of(settings))
    assert canaries_in("".join(f"{value!r}{value}" for value in shown)) == []


def test_support_bundle_shows_no_secret(settings: Settings, tmp_path: Path) -> None:
    findings = [
        CheckResult(f"asked {canary}", fail(f"it said: {canary}", canary)) for canary in CANARIES
    ]
    write_bundle(tmp_path / "bundle.zip", settings, findings)
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        contents = [archive.read(name).decode() for name in archive.namelist()]
    assert canaries_in("".join(contents)) == []


@pytest.mark.parametrize(
    "wrong_file",
    [
        f'[server]\napi_key = "{SERVER} "\n',
        f'[backend]\nurl = "http://user:{BACKEND}@127.0.0.1"\n',
        f'[backend]\nheaders = {{ x-team = "{HEADER}\\u0000" }}\n',
        f'[backend]\nheaders = {{ authorization = "{HEADER}" }}\n',
        f'[backend]\napi_kee = "{BACKEND}"\n',
        f'[server]\napi_key = ["{SERVER}"]\n',
    ],
)
def test_error_of_a_secret_setting_omits_its_value(wrong_file: str, tmp_path: Path) -> None:
    file = tmp_path / "temper.toml"
    file.write_text(wrong_file, encoding="utf-8")
    with pytest.raises(InvalidConfiguration) as refused:
        load_settings(file)
    assert canaries_in(f"{refused.value!r}{refused.value}") == []


def test_error_of_a_key_file_omits_its_lines(settings: Settings) -> None:
    path = settings.server.api_keys_file
    assert path is not None
    path.write_text(f"{OWNER}\n", encoding="utf-8")
    with pytest.raises(InvalidConfiguration) as refused:
        server_options_of(settings)
    assert canaries_in(str(refused.value)) == []
