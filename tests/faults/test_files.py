"""F82, F84: oversized and malformed files, and a full disk."""

import os
import sqlite3
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import msgspec
import pytest

from proxy import bounds
from proxy.api.app import ServerOptions, create_app
from proxy.api.dialects import all_dialects
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.processes.model_file import UNREADABLE, read_header
from proxy.state.responses_file import open_responses
from proxy.state.responses_table import ResponsesTable
from tests.fakes.invoked import config, temper
from tests.fakes.recorded import exchange
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import says

UNUSABLE_FILE = pytest.mark.fault("F82")

MANY = 100_000
URL = "http://127.0.0.1:9"
LONG_KEY = ".".join(["a"] * 50_000)
TOO_MANY_PARTS = f"has a key of more than {bounds.KEY_PARTS} parts"
TOO_DEEP = "is nested too deeply"
TOO_LARGE = f"is larger than {bounds.FILE_BYTES} bytes"
ENDLESS = "/dev/zero"
WEATHER = '[[tool]]\nname = "get_weather"\n'
DOCUMENTS = [
    ("x = " + "[" * MANY, TOO_DEEP),
    ("x = " + "{a = " * MANY, TOO_DEEP),
    (f"{LONG_KEY} = 1", TOO_MANY_PARTS),
    (f"[server]\nport = 1\n[[{LONG_KEY}]]", TOO_MANY_PARTS),
    ("x = {b = 1, " + " . ".join(['"="', "'.'"] * MANY) + " = 1}", TOO_MANY_PARTS),
    ("port = 0x" + "f" * MANY, f"has a number of more than {bounds.DIGITS} digits"),
    ("#" * (bounds.FILE_BYTES + 1), TOO_LARGE),
]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def error_of_command(*arguments: str) -> str:
    """Run the command, which must fail with an error of one sentence."""
    ended = temper(*arguments)
    error = ended.stderr.strip()
    assert ended.exit_code == 1
    assert error.startswith("temper: ")
    assert len(error) < 3 * bounds.CHARACTERS
    assert "\n" not in error
    return error


@UNUSABLE_FILE
@pytest.mark.parametrize(("text", "problem"), DOCUMENTS)
def test_a_malformed_settings_file_is_a_one_line_error(text: str, problem: str) -> None:
    assert problem in error_of_command("check", "--config", config(text))


@UNUSABLE_FILE
@pytest.mark.parametrize(("text", "problem"), DOCUMENTS)
def test_a_malformed_profile_is_a_one_line_error(text: str, problem: str) -> None:
    Path("profiles").mkdir()
    Path("profiles/own.toml").write_text(text, encoding="utf-8")
    assert problem in error_of_command(
        "check", "--config", config('[profile]\nfolder = "profiles"')
    )


@UNUSABLE_FILE
@pytest.mark.parametrize(("text", "problem"), DOCUMENTS)
def test_a_malformed_scenario_is_a_one_line_error(text: str, problem: str) -> None:
    Path("own").mkdir()
    Path("own/one.toml").write_text(text, encoding="utf-8")
    assert problem in error_of_command("eval", "--backend-url", URL, "--scenarios", "own")


@UNUSABLE_FILE
@pytest.mark.parametrize("name", ["TEMPER_MODELS", "TEMPER_SERVER", "TEMPER_BACKEND__URLS"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_deeply_nested_environment_variable_is_a_one_line_error(
    name: str, opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, opening * 20_000)
    assert name.partition("_")[2].partition("__")[0].lower() in error_of_command("check")


@UNUSABLE_FILE
@pytest.mark.parametrize(
    "setting", ["server.api_keys_file", "server.api_key_file", "model.path", "responses.path"]
)
def test_a_path_to_a_folder_or_device_or_pipe_is_a_one_line_error(setting: str) -> None:
    section, _, name = setting.partition(".")
    os.mkfifo("pipe")
    kinds = ["/", ENDLESS] + ["pipe"] * (name == "path")
    for kind in kinds:
        assert setting in error_of_command(
            "check", "--config", config(f'[{section}]\n{name} = "{kind}"')
        )


@UNUSABLE_FILE
@pytest.mark.parametrize(
    "text",
    [
        f"[server]\n{'a' * MANY} = 1",
        f'[server]\nhost = "{"a" * MANY}"',
        f'[server]\nhost = "{"${A" * MANY}"',
        f"[models.{'a' * MANY}]\nunknown = 1",
    ],
)
def test_long_invalid_values_are_truncated_in_errors(text: str) -> None:
    assert " ... " in error_of_command("check", "--config", config(text))


@UNUSABLE_FILE
def test_only_a_limited_number_of_invalid_settings_is_listed() -> None:
    text = "[server]\n" + "\n".join(f"wrong_{number} = 1" for number in range(20_000))
    errors = temper("check", "--config", config(text)).stderr.splitlines()
    assert len(errors) == bounds.PROBLEMS + 1


@UNUSABLE_FILE
@pytest.mark.parametrize("name", ["a\\u0000b", "a" * 5_000])
@pytest.mark.parametrize(
    "setting",
    [
        *("server.api_keys_file", "server.api_key_file", "model.path", "model.server"),
        *("responses.path", "recording.path", "profile.folder"),
    ],
)
def test_an_invalid_file_name_in_the_settings_is_a_one_line_error(setting: str, name: str) -> None:
    section, _, key = setting.partition(".")
    assert setting in error_of_command(
        "check", "--config", config(f'[{section}]\n{key} = "{name}"')
    )


@UNUSABLE_FILE
@pytest.mark.parametrize(
    ("member", "nonsense"),
    [("generations", [[]]), ("generations", [[[]]]), ("model", {"convention": "none"})],
)
def test_a_recording_with_members_of_wrong_types_is_a_one_line_error(
    member: str, nonsense: JsonValue
) -> None:
    recorded = json.parse(msgspec.json.encode(exchange()))
    assert isinstance(recorded, dict)
    before = recorded[member]
    if isinstance(before, dict) and isinstance(nonsense, dict):
        nonsense = {**before, **nonsense}
    Path("some.jsonl").write_bytes(json.dump({**recorded, member: nonsense}))
    error = error_of_command("replay", "some.jsonl")
    assert "has an inconsistent exchange" in error or "does not belong to a recording" in error


@UNUSABLE_FILE
def test_an_endless_settings_file_is_a_one_line_error() -> None:
    assert TOO_LARGE in error_of_command("check", "--config", ENDLESS)


@UNUSABLE_FILE
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 200_000, "does not belong to a recording"),
        (b'{"request": ' + b'{"a": ' * 200_000, "does not belong to a recording"),
        (b"\n" + b"x" * 1_001, "line 2 has more than 1000 bytes"),
    ],
)
def test_a_malformed_recording_is_a_one_line_error(
    content: bytes, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(content) < MANY:
        monkeypatch.setattr(bounds, "RECORDED_BYTES", 1_000)
    Path("some.jsonl").write_bytes(content)
    assert problem in error_of_command("replay", "some.jsonl")


@UNUSABLE_FILE
def test_an_endless_recording_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RECORDED_BYTES", 1_000)
    assert "line 1 has more than 1000 bytes" in error_of_command("replay", ENDLESS)


@UNUSABLE_FILE
def test_gguf_header_with_too_many_fields_is_rejected(tmp_path: Path) -> None:
    fields = b"".join(struct.pack("<Q8sIB", 8, b"%08d" % number, 0, 1) for number in range(MANY))
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, MANY) + fields)
    with pytest.raises(UNREADABLE, match="more than 1000 fields"):
        read_header(path)


@UNUSABLE_FILE
def test_a_gguf_header_beyond_the_size_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:  # a sparse file, without any bytes on the disk
        file.write(struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, bounds.HEADER_BYTES))
        file.truncate(bounds.HEADER_BYTES + 100)
    with pytest.raises(UNREADABLE):
        read_header(path)


@UNUSABLE_FILE
def test_scenario_schema_references_are_never_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    schema = f'schema = {{ "$ref" = "file://{tmp_path}/secret.json" }}\n'
    (tmp_path / "secret.json").write_text('{"const": "secret"}', encoding="utf-8")
    (folder / "one.toml").write_text(f'user = "Hi."\n{WEATHER}{schema}', encoding="utf-8")
    assert "is not fetched" in error_of_command("eval", "--backend-url", URL, "--scenarios", "own")


@pytest.mark.fault("F84")
async def test_deleting_a_stored_response_on_a_full_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_table: ResponsesTable, _owner: str, _response_id: str) -> bool:
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise full

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(listening(ScriptedBackend(says("Hi."))))
        engine = LlamaServer(BackendClient(upstream.url))
        stack.push_async_callback(engine.close)
        file = stack.enter_context(open_responses(tmp_path / "kept.sqlite"))
        app = create_app(
            ServerOptions().services_for(engine), ServerOptions(), dialects=all_dialects(file)
        )
        server = await stack.enter_async_context(listening(app))
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        url = f"{server.url}/v1/responses"
        made = await client.post(url, json={"model": "m", "input": "Hi."})
        path = f"{url}/{made.json()['id']}"
        with monkeypatch.context() as disk:
            disk.setattr(ResponsesTable, "forget", refuse)
            error_of_command = await client.delete(path)
        assert error_of_command.status_code == 503
        assert "is full (responses.path)" in error_of_command.json()["error"]["message"]
        assert (await client.get(path)).status_code == 200
        assert (await client.delete(path)).json()["deleted"] is True
