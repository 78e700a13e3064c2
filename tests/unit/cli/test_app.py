import signal
import socket
from pathlib import Path
from typing import cast

import click
import msgspec
import pytest

from proxy.cli.app import main
from proxy.conversation import json
from proxy.observability.recording import RecordedAnswer
from proxy.profiles.tried_models import TriedModel, TriedModels, cache_folder
from tests.fakes.invoked import config, document, temper
from tests.fakes.llama import build_model
from tests.fakes.recorded import exchange

URL = "http://127.0.0.1:9"


def test_the_version_is_printed_as_text_and_as_json() -> None:
    version = document(temper("version", "--json"))
    sentence = "temper {temper} (commit {commit}, Python {python}, {engine})\n".format_map(version)
    assert temper("version").stdout == sentence
    assert temper("--version").stdout == sentence


def test_temper_help_truncates_no_summary_and_mentions_the_demo() -> None:
    result = temper("--help")
    assert "..." not in result.stdout.partition("Commands:")[2]
    assert "Try: temper demo" in result.stdout


@pytest.mark.parametrize(
    "command", ["serve", "demo", "models", "tools", "doctor", "replay", "check", "version"]
)
def test_every_option_has_a_help_text(command: str) -> None:
    command_object = main.get_command(click.Context(main), command)
    assert command_object is not None
    options = [param for param in command_object.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert "--json" in {name for option in options for name in option.opts}


def test_temper_check_accepts_a_valid_configuration_and_hides_its_secrets() -> None:
    file = config('[server]\nport = 1234\napi_key = "sesame"\n')
    result = temper("check", "--config", file)
    assert (result.exit_code, result.stdout.partition(".")[0]) == (0, "The configuration is valid")

    result = temper("check", "--config", file, "--json")
    problems = document(result)
    assert (result.exit_code, problems["ok"]) == (0, True)
    assert isinstance(problems["settings"], dict)
    assert isinstance(problems["settings"]["server"], dict)
    assert problems["settings"]["server"]["port"] == 1234
    assert "sesame" not in result.stdout


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_unusable_responses_file_is_reported_in_one_sentence(workers: str) -> None:
    file = config(f'[responses]\npath = "some.toml"\n[server]\nport = 0\nworkers = {workers}\n')
    checked = temper("check", "--config", file)
    served = temper("serve", "--config", file, "--backend-url", URL)
    sentence = "temper: responses.path: some.toml is damaged (file is not a database); remove it"
    assert checked.exit_code == served.exit_code == 1
    assert checked.stderr.startswith(sentence)
    assert served.stderr.startswith(sentence)
    assert temper("check", "--config", file, "--json").stdout.startswith('{"ok":false,')


@pytest.mark.parametrize("command", ["check", "serve"])
def test_check_and_serve_report_every_problem_of_a_configuration_with_its_file(
    command: str,
) -> None:
    file = config('[server]\nprt = 1\nport = "x"\n')
    result = temper(command, "--config", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("temper: ")
    assert "did you mean server.port? (some.toml)" in result.stderr
    assert "not 'x' (some.toml)" in result.stderr

    result = temper(command, "--config", file, "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert document(result)["ok"] is False


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_missing_settings_file_is_an_error(command: str) -> None:
    result = temper(command, "--config", "no.toml", "--json")
    assert result.exit_code == 1
    assert document(result)["error"] == "no.toml: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--backend-url", "nowhere"), "backend.url: should be an address"),
        (("--port", "70000"), "server.port: should be less"),
        (("--host", "0.0.0.0"), "requires an API key"),
        (("--context-tokens", "1"), "model.context_tokens: should be greater"),
        (("--slots", "0"), "model.slots: should be greater"),
        (("--text-policy", "loud"), "guardrails.text_policy: should be 'auto'"),
        (("--budget", "lavish"), "context.budget: should be 'backend'"),
        (("--budget", "manual"), "set context.window_tokens"),
        (("--log-format", "xml"), "logging.format: should be 'auto'"),
        (("--backend-url", URL, "--model", "a.gguf"), "cannot be combined"),
        (("--ollama", "qwen3:8b", "--model", "a.gguf"), "cannot be combined"),
        (("--ollama", "no model"), "ollama.model: String should match"),
        (("--ollama", "qwen3:8b", "--context-tokens", "-1"), "ollama.context_tokens: should be"),
    ],
)
def test_the_error_for_an_invalid_flag_names_the_setting(
    flags: tuple[str, ...], problem: str
) -> None:
    result = temper("serve", *flags)
    assert result.exit_code == 1
    assert problem in result.stderr


@pytest.mark.parametrize("flags", [("serve", "--frobnicate"), ("serve", "this"), ("dance",)])
def test_an_unknown_command_or_option_is_a_usage_error(flags: tuple[str, ...]) -> None:
    result = temper(*flags)
    assert result.exit_code == 2
    assert "--help" in result.stderr


def test_temper_models_shows_the_profile_of_a_model_file_and_why_it_matches() -> None:
    Path("Qwen3-8B-Q4_K_M.gguf").write_bytes(b"GGUF")
    lines = temper("models", "--model", "Qwen3-8B-Q4_K_M.gguf").stdout.splitlines()
    assert lines[0] == "Qwen3-8B-Q4_K_M.gguf"
    assert lines[1].startswith("  profile   qwen3 (Qwen3")
    assert 'matches "' in lines[1]
    (model,) = [*document(temper("models", "--json", "--model", "Qwen3-8B-Q4_K_M.gguf")).values()]
    assert isinstance(model, list)
    assert isinstance(model[0], dict)
    assert (model[0]["id"], model[0]["profile"]) == ("Qwen3-8B-Q4_K_M.gguf", "qwen3")


def test_temper_models_shows_how_many_tokens_fit_into_memory() -> None:
    model = str(build_model(Path("model.gguf")))
    output = temper("models", "--model", model).stdout
    assert "  window    8,192 tokens fit for each of 2 slots" in output
    assert "host: " in output
    (model_facts,) = [*document(temper("models", "--json", "--model", model)).values()]
    assert isinstance(model_facts, list)
    assert isinstance(model_facts[0], dict)
    assert isinstance(model_facts[0]["memory"], dict)
    assert model_facts[0]["memory"]["trained_context"] == 8192


def test_temper_models_lists_profiles_if_the_flag_known_is_set() -> None:
    lines = temper("models", "--known").stdout.splitlines()
    assert {"qwen3-coder", "gpt-oss", "gemma3"} <= set(lines)


@pytest.mark.parametrize("flags", [("--model", "none.gguf"), ("--backend-url", "http://[::1]:1")])
def test_temper_models_reports_a_missing_file_or_server_in_one_line(flags: tuple[str, ...]) -> None:
    result = temper("models", *flags)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_temper_serve_without_a_model_lists_the_possible_flags_and_temper_demo() -> None:
    result = temper("serve", "--port", "0", "--look-at", URL)
    assert result.exit_code == 1
    for way_out in ("--backend-url", "--ollama", "--model", "temper demo"):
        assert way_out in result.stderr


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no[/such].gguf", "no[/such].gguf does not exist: check the path"),
        (".", "is a folder"),
        ("text.gguf", "is not a GGUF file"),
    ],
)
def test_an_invalid_model_file_is_refused_in_one_sentence(name: str, problem: str) -> None:
    Path("text.gguf").write_text("once upon a time", encoding="utf-8")
    result = temper("serve", "--port", "0", "--model", name, "--strict")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert problem in result.stderr

    result = temper("serve", "--port", "0", "--model", name, "--json")
    assert problem in str(document(result)["error"])


def test_the_error_for_a_used_port_names_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        result = temper("serve", "--backend-url", URL, "--port", port)
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr


def test_the_demo_refuses_an_invalid_port() -> None:
    result = temper("demo", "--port", "70000")
    assert result.exit_code == 2
    assert "0<=x<=65535" in result.stderr


def test_signal_handlers_are_restored_after_a_command() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert temper("serve", "--port", "0", "--look-at", URL).exit_code == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_temper_models_lists_the_tested_models_if_the_flag_tried_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "temper doctor" in temper("models", "--tried").stdout
    assert document(temper("models", "--tried", "--json")) == {"models": []}
    folder = cache_folder()
    made = TriedModel(
        name="tiny", identity="t", template="", server="b1", tried_at="2026-01-01", temper="1"
    )
    TriedModels(folder).save(made)
    assert "tiny" in temper("models", "--tried").stdout
    (listed,) = cast(
        "list[json.JsonObject]", document(temper("models", "--tried", "--json"))["models"]
    )
    assert (listed["id"], listed["failed"]) == ("tiny", [])


def test_tuned_settings_are_shown_by_the_commands_models_and_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "temper" / "tuned"
    folder.mkdir(parents=True)
    text = '[keys]\nmodel = "qwen"\n[guardrails]\ntext_policy = "respond"\n'
    (folder / "qwen.toml").write_text(text, encoding="utf-8")
    line = f"tuned for qwen: text_policy = respond ({folder / 'qwen.toml'})"
    assert line in temper("models", "--tried").stdout
    assert f"# lower precedence: {line}" in temper("config").stdout
    assert line not in temper("config", "--defaults").stdout


def test_temper_doctor_fails_if_neither_a_server_nor_a_model_is_found() -> None:
    result = temper("doctor", "--look-at", URL)
    assert result.exit_code == 1
    assert "no server responds" in result.stderr


def test_temper_doctor_prints_each_result_and_exits_with_1_on_a_failure() -> None:
    result = temper("doctor", "--backend-url", URL)
    assert result.exit_code == 1
    assert "ok   open files" in result.stdout
    assert "fail readiness" in result.stdout
    assert "1 failed." in result.stdout
    report = document(temper("doctor", "--backend-url", URL, "--json"))
    assert report["ok"] is False


def test_temper_replay_exits_with_1_if_a_reply_has_changed() -> None:
    path = Path("recording.jsonl")
    path.write_text(msgspec.json.encode(exchange()).decode(), encoding="utf-8")
    same = temper("replay", str(path))
    assert (same.exit_code, same.stdout) == (0, "r  m: same\n0 of 1 changed\n")
    path.write_text(
        msgspec.json.encode(exchange(answer=RecordedAnswer(text="Hi"))).decode(), encoding="utf-8"
    )
    changed = temper("replay", str(path))
    assert changed.exit_code == 1
    assert "    text: Hi -> (nothing)\n" in changed.stdout
    done = temper("replay", str(path), "--json")
    assert done.exit_code == 1
    assert document(done)["changed"] == 1


def test_an_invalid_recording_is_reported_in_one_sentence() -> None:
    result = temper("replay", "nothing.jsonl")
    assert result.exit_code == 1
    assert "nothing.jsonl: cannot be read" in result.stderr
    assert document(temper("replay", "nothing.jsonl", "--json"))["ok"] is False
