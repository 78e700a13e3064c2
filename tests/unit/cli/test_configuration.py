"""`temper check` and `temper config`: checked files, origins, and hidden secrets."""

import tomllib
from pathlib import Path

import pytest

from proxy.cli.configuration import HIDDEN, example_file
from proxy.settings import Settings, load_settings
from tests.fakes.invoked import config, document, temper

REPOSITORY = Path(__file__).parents[3]
FILE = """
[server]
port = 1234
api_key = "sesame"
[models."a.b"]
path = "model.gguf"
headers = {"x-key" = "hush"}
[models.c]
path = "model.gguf"
extra_arguments = ["--key", "hush"]
[aliases]
"claude-*" = "c"
[workflows.c]
required_steps = ["read"]
"""


def test_check_reports_the_settings_file_or_its_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "No temper.toml in this folder; using the defaults." in temper("check").stdout
    monkeypatch.setenv("TEMPER_SERVER__PORT", "1")
    assert "using the defaults, 1 set by the environment." in temper("check").stdout
    Path("temper.toml").write_text("[server]\nhost = '127.0.0.2'\n", encoding="utf-8")
    output = temper("check").stdout
    assert "temper.toml: 1 setting, 1 set by the environment." in output
    assert document(temper("check", "--json"))["file"] == "temper.toml"


def test_check_verifies_the_files_of_models() -> None:
    file = config(FILE)
    result = temper("check", "--config", file)
    assert result.exit_code == 1
    assert "2 problems" in result.stderr
    assert "models.c.path: model.gguf does not exist: check the path (some.toml)" in result.stderr
    Path("model.gguf").write_bytes(b"GGUF")
    result = temper("check", "--config", file)
    assert result.exit_code == 0
    assert "Model files found: 2." in result.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[model]\npath = "."\n', "is a folder"),
        ('[model]\nserver = "nowhere"\n', "is not a program"),
        ('[server]\napi_keys_file = "nowhere"\n', "cannot be read"),
        ('[profile]\nfolder = "nowhere"\n', "nowhere"),
    ],
)
def test_check_reports_a_setting_whose_file_or_program_cannot_be_used(
    text: str, problem: str
) -> None:
    result = temper("check", "--config", config(text))
    assert result.exit_code == 1
    assert problem in result.stderr


def test_the_json_output_of_check_lists_every_problem_with_its_setting() -> None:
    file = config('[server]\nprt = 1\nport = "x"\n')
    report = document(temper("check", "--config", file, "--json"))
    assert report["ok"] is False
    problems = report["problems"]
    assert isinstance(problems, list)
    assert [problem["setting"] for problem in problems if isinstance(problem, dict)] == [
        "server.prt",
        "server.port",
    ]
    assert "2 problems" in str(report["error"])


def test_temper_config_shows_each_value_with_its_origin_and_hides_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPER_LOGGING__LEVEL", "debug")
    result = temper("config", "--config", config(FILE))
    lines = result.stdout.splitlines()
    assert "port = 1234  # some.toml" in lines
    assert f'api_key = "{HIDDEN}"  # some.toml' in lines
    assert 'level = "debug"  # environment variable TEMPER_LOGGING__LEVEL' in lines
    assert 'host = "127.0.0.1"  # default' in lines
    assert '[models."a.b"]' in lines
    assert '"claude-*" = "c"  # some.toml' in lines
    assert "sesame" not in result.stdout
    assert "hush" not in result.stdout


def test_the_output_of_temper_config_can_be_loaded_as_settings() -> None:
    plain = FILE.replace('api_key = "sesame"\n', "").replace('headers = {"x-key" = "hush"}\n', "")
    plain = plain.replace('extra_arguments = ["--key", "hush"]\n', "")
    settings = load_settings(Path(config(plain)))
    output = temper("config", "--config", "some.toml").stdout
    assert tomllib.loads(output)["server"]["port"] == 1234
    assert load_settings(Path(config(output))).model_dump() == settings.model_dump()


def test_a_value_from_an_environment_variable_in_the_file_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_NAME", "hush")
    file = config('[model]\nalias = "${MY_NAME}"\n')
    assert "hush" not in temper("config", "--config", file).stdout


def test_the_json_output_of_temper_config_has_each_value_with_its_origin() -> None:
    values = document(temper("config", "--config", config(FILE), "--json"))
    assert values["server.port"] == {"value": 1234, "origin": "some.toml"}
    assert values["server.api_key"] == {"value": HIDDEN, "origin": "some.toml"}


def test_temper_config_prints_the_example_file_if_the_flag_defaults_is_set() -> None:
    output = temper("config", "--defaults").stdout
    assert output == (REPOSITORY / "config" / "temper.toml").read_text(encoding="utf-8")
    assert output == example_file()
    values = document(temper("config", "--defaults", "--json"))
    assert values["server.port"] == {"value": Settings().server.port, "origin": "default"}


def test_temper_config_does_not_print_an_invalid_configuration() -> None:
    result = temper("config", "--config", config("[server]\nprt = 1\n"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "did you mean server.port?" in result.stderr


def test_the_flags_defaults_and_effective_cannot_be_combined() -> None:
    assert temper("config", "--defaults", "--effective").exit_code == 2


def test_check_reports_a_missing_mcp_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.mcp.hosting.find_spec", lambda _name: None)
    file = config("[mcp.web]\nurl = 'http://127.0.0.1:8001/mcp'\n")
    for command in ("check", "tools"):
        result = temper(command, "--config", file)
        assert result.exit_code == 1
        assert "mcp.web: needs the SDK of MCP: pip install 'temper-proxy[mcp]'" in result.stderr


def test_check_reports_a_tool_server_without_a_program(tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    Path("temper.toml").write_text(
        f"""
[mcp.missing]
command = ["no-such-program"]
[mcp.on_the_path]
command = ["run.sh"]
env = {{PATH = "{tmp_path}"}}
[mcp.relative]
command = ["./run.sh"]
cwd = "{tmp_path}"
[mcp.elsewhere]
command = ["./run.sh"]
""",
        encoding="utf-8",
    )
    errors = temper("check").stderr
    assert "mcp.missing.command: no-such-program is not on the PATH" in errors
    assert "mcp.elsewhere.command" in errors
    assert "on_the_path" not in errors
    assert "relative" not in errors
