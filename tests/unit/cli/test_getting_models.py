"""`temper models` where nothing is served, and `temper pull` with what is at hand."""

from pathlib import Path

import pytest

from proxy.conversation import json
from tests.fakes.invoked import temper


@pytest.fixture(autouse=True)
def _an_empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("PATH", "")
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def model_at(name: str, content: bytes = b"GGUF") -> Path:
    path = Path.cwd() / "cache" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_models_that_lie_here_are_listed_with_the_way_to_serve_them() -> None:
    path = model_at("Qwen3-8B-Q4_K_M.gguf", b"GGUF" + bytes(3 * 2**20))
    told = temper("models").stdout.splitlines()
    assert told[:3] == ["Qwen3-8B-Q4_K_M", "  Q4_K_M, 3.0 MiB, llama.cpp", f"  {path}"]
    assert told[-1] == "Serve one: temper serve --model PATH"


def test_a_broken_one_is_told_of_and_not_to_be_served() -> None:
    model_at("bad.gguf", b"<html>")
    told = temper("models").stdout
    assert "unusable: is not a GGUF file" in told
    assert "Serve one" not in told


def test_a_file_with_a_hostile_name_steers_no_terminal() -> None:
    model_at("a\x1b[2J.gguf")
    assert "\x1b" not in temper("models").stdout


def test_where_there_is_none_the_way_to_one_is_told() -> None:
    told = temper("models")
    assert told.exit_code == 0
    assert "temper pull owner/name:Q4_K_M" in told.stdout


def test_programs_get_them_as_json_also_where_something_is_served() -> None:
    path = model_at("m-Q4_0.gguf")
    for flags in ((), ("--cached", "--model", "other.gguf")):
        told = json.parse(temper("models", "--json", *flags).stdout)
        assert isinstance(told, dict)
        assert told["cached"] == [
            {
                "name": "m-Q4_0",
                "from": "llama.cpp",
                "path": str(path),
                "bytes": 4,
                "quantisation": "Q4_0",
                "problem": None,
            }
        ]


def test_without_a_server_that_downloads_it_is_said_what_does() -> None:
    for command in (("pull", "owner/name:Q4_K_M"), ("serve", "--hf", "owner/name:Q4_K_M")):
        result = temper(*command)
        assert result.exit_code == 1
        assert "the embedded server cannot download owner/name:Q4_K_M" in result.stderr
        assert "hf download owner/name" in result.stderr


def test_what_is_no_repository_is_refused() -> None:
    assert temper("pull", "qwen3").exit_code == 2
    result = temper("serve", "--hf", "qwen3")
    assert "should be like owner/name or owner/name:Q4_K_M" in result.stderr
