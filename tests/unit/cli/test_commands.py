import sys
import tomllib
from pathlib import Path

import pytest

from proxy.conversation import json
from tests.fakes.hub import FakeHub, hub_in_thread
from tests.fakes.invoked import config, document, temper
from tests.fakes.tool_servers import PROGRAM


def tool_server(*options: str, tools: str = '["echo"]', ask: str = "[]") -> str:
    command = json.dump_text([sys.executable, "-P", PROGRAM, *options])
    named = f"tools = {tools}\nask = {ask}\n"
    return config(f"[mcp.fake]\ncommand = {command}\n{named}prefix = 'f_'\n")


def test_temper_tools_lists_tools_with_their_offered_names_and_the_server_digest() -> None:
    file = tool_server()
    result = temper("tools", "--config", file)
    assert result.exit_code == 0
    assert "fake  ready 2025-11-25" in result.stdout
    assert "echo  (offered as f_echo)  echo" in result.stdout
    assert "fail  (not offered)  does fail" in result.stdout
    listed = document(temper("tools", "--config", file, "--json"))["servers"]
    assert isinstance(listed, list)
    assert isinstance(listed[0], dict)
    assert f'digest = "{listed[0]["digest"]}"' in result.stdout


def test_temper_tools_without_tool_servers_prints_an_example_configuration() -> None:
    output = temper("tools").stdout
    assert "No tool servers are configured." in output
    assert tomllib.loads(output.partition("\n")[2])["mcp"]["files"]["command"][0] == "npx"


def test_tools_that_need_approval_are_marked() -> None:
    file = tool_server(tools='["echo", "fail"]', ask='["fail"]')
    output = temper("tools", "--config", file).stdout
    assert "echo  (offered as f_echo)  echo" in output
    assert "fail  (offered as f_fail, after approval)  does fail" in output
    listed = document(temper("tools", "--config", file, "--json"))["servers"]
    assert isinstance(listed, list)
    tools = listed[0]["tools"]  # type: ignore[index, call-overload]
    assert [tool["name"] for tool in tools if tool["needs_yes"]] == ["fail"]  # type: ignore[index, union-attr, call-overload]


def test_temper_tools_exits_with_1_if_a_tool_server_cannot_be_started() -> None:
    file = config("[mcp.gone]\ncommand = ['/no/such/program']\n")
    result = temper("tools", "--config", file)
    assert (result.exit_code, "cannot run /no/such/program" in result.stdout) == (1, True)


def test_the_json_output_of_temper_tools_is_an_empty_list_without_tool_servers() -> None:
    assert document(temper("tools", "--json")) == {"servers": []}


def test_temper_tools_call_prints_the_result_or_the_error_of_a_tool() -> None:
    file = tool_server(tools="[]")
    called = temper("tools", "call", "fake.echo", '{"text": "hi"}', "--config", file)
    assert (called.exit_code, called.stdout) == (0, "hi\n")
    failed = temper("tools", "call", "fake.fail", "--config", file, "--json")
    assert failed.exit_code == 1
    assert document(failed) == {"ok": False, "result": "Error: it is broken"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fake.gone",), "has no tool 'gone'; available: echo, hang"),
        (("other.echo",), "unknown tool server 'other'; available: fake"),
        (("fake.echo", "{"), "not valid JSON"),
    ],
)
def test_temper_tools_call_refuses_an_unknown_tool_and_invalid_arguments(
    arguments: tuple[str, ...], message: str
) -> None:
    result = temper("tools", "call", *arguments, "--config", tool_server())
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.fixture(autouse=True)
def _without_cached_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_temper_models_lists_local_models_and_the_command_to_serve_them() -> None:
    path = model_at("Qwen3-8B-Q4_K_M.gguf", b"GGUF" + bytes(3 * 2**20))
    lines = temper("models").stdout.splitlines()
    assert lines[:3] == ["Qwen3-8B-Q4_K_M", "  Q4_K_M, 3.0 MiB, llama.cpp", f"  {path}"]
    assert lines[-1] == "To serve a model: temper serve --model PATH"


def test_a_corrupt_model_is_listed_as_unusable() -> None:
    model_at("bad.gguf", b"<html>")
    output = temper("models").stdout
    assert "unusable: is not a GGUF file" in output
    assert "Serve one" not in output


def test_control_characters_in_the_name_of_a_file_are_escaped() -> None:
    model_at("a\x1b[2J.gguf")
    assert "\x1b" not in temper("models").stdout


def test_temper_models_without_models_shows_the_download_command() -> None:
    output = temper("models")
    assert output.exit_code == 0
    assert "temper pull Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M" in output.stdout


def test_the_json_output_of_temper_models_lists_cached_models_even_with_the_flag_model() -> None:
    path = model_at("m-Q4_0.gguf")
    for flags in ((), ("--cached", "--model", "other.gguf")):
        models = json.parse(temper("models", "--json", *flags).stdout)
        assert isinstance(models, dict)
        assert models["cached"] == [
            {
                "name": "m-Q4_0",
                "from": "llama.cpp",
                "path": str(path),
                "bytes": 4,
                "quantisation": "Q4_0",
                "problem": None,
            }
        ]


def test_the_error_of_the_embedded_server_names_the_command_temper_pull() -> None:
    result = temper("serve", "--port", "0", "--hf", "owner/name:Q4_K_M")
    assert result.exit_code == 1
    assert "the embedded server cannot download owner/name:Q4_K_M" in result.stderr
    assert "Run `temper pull owner/name:Q4_K_M`, and start the file" in result.stderr


def test_temper_pull_downloads_a_model_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    fake = FakeHub({"name-Q4_K_M.gguf": b"GGUF"})
    with hub_in_thread(fake) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        result = temper("pull", "owner/name")
        missing = temper("pull", "owner/other")
    assert result.exit_code == 0
    path = result.stdout.splitlines()[1].partition("--model ")[2]
    assert Path(path).read_bytes() == b"GGUF"
    assert "download: downloading" in result.stderr
    assert path in temper("models").stdout
    assert missing.exit_code == 1
    assert f"owner/other does not exist at {url}, or is private." in missing.stderr


def test_an_invalid_hugging_face_repository_is_refused() -> None:
    assert temper("pull", "qwen3").exit_code == 2
    result = temper("serve", "--hf", "qwen3")
    assert "should be like owner/name or owner/name:Q4_K_M" in result.stderr
