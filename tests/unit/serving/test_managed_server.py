import asyncio
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.errors import LaunchFailed
from proxy.processes.model_file import ModelFile
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.serving.managed_server import (
    alias_of,
    connection_to,
    introduce_file,
    launch_plan,
    model_file,
    supervisor,
)
from proxy.settings import Settings, load_settings
from tests.fakes.sockets import listening

OWN_PROFILE = """
name = "falcon"
title = "Falcon"
sources = ["https://example.org/falcon"]
[match]
names = ["falcon-x*"]
"""


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "my-llama-server"
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (
            {"path": "qwen3-8b.gguf"},
            "-m qwen3-8b.gguf -np 2 -c 16384 --port 0 -a qwen3-8b "
            "--temp 0.6 --top-p 0.95 --top-k 20 --min-p 0",
        ),
        (
            {"hf_repo": "owner/Unheard-GGUF:Q4_K_M", "slots": 1, "context_tokens": 512},
            "-hf owner/Unheard-GGUF:Q4_K_M -np 1 -c 512 --port 0 -a Unheard-GGUF",
        ),
        (
            {
                "path": "m.gguf",
                "alias": "mine",
                "gpu_layers": 20,
                "flash_attention": "on",
                "cache_type_k": "q8_0",
                "cache_type_v": "q8_0",
                "port": 9000,
                "extra_arguments": ["-t", "4"],
            },
            "-m m.gguf -np 2 -c 16384 -ngl 20 -fa on -ctk q8_0 -ctv q8_0 --port 9000 -a mine -t 4",
        ),
    ],
)
def test_a_plan_is_made_of_settings_and_profile(
    program: Path, model: dict[str, object], command: str
) -> None:
    wanted = settings_of(model={**model, "server": str(program)})
    told = " ".join(launch_plan(wanted, wanted.model).command())
    for same in ("--host 127.0.0.1 ", "--jinja --no-webui --slots --metrics "):
        assert same in told
        told = told.replace(same, "")
    assert told.replace(" --jinja --no-webui --slots --metrics", "") == f"{program} {command}"


def test_a_server_is_prepared_without_being_started(program: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    wanted = settings_of(model={"path": str(model), "server": str(program)})
    server = supervisor(wanted, wanted.model)
    assert (server.name, server.status.state) == ("llama-server/m", RestartState.STOPPED)


def test_what_cannot_be_started_is_said_at_once(program: Path, tmp_path: Path) -> None:
    wanted = settings_of(model={"path": str(tmp_path / "none.gguf"), "server": str(program)})
    with pytest.raises(LaunchFailed, match="does not exist"):
        supervisor(wanted, wanted.model)


def test_a_model_to_download_is_known_by_its_name() -> None:
    own = settings_of(model={"hf_repo": "owner/Qwen3-8B-GGUF"}).model
    assert model_file(own) == ModelFile(("owner/Qwen3-8B-GGUF",))
    assert alias_of(own) == "Qwen3-8B-GGUF"


def test_a_file_is_introduced_by_its_own_names_and_the_operators(tmp_path: Path) -> None:
    (tmp_path / "falcon.toml").write_text(OWN_PROFILE, encoding="utf-8")
    wanted = settings_of(profile={"folder": str(tmp_path)}, model={"alias": "falcon-x1"})
    known = introduce_file(wanted, wanted.model, ModelFile(("model.gguf",)))
    assert (known.model, known.recognition.profile.name) == ("model.gguf", "falcon")
    assert introduce_file(Settings(), Settings().model, ModelFile(("m",), "qwen3")).quirks.syntaxes


@pytest.mark.parametrize(
    ("own", "sent"), [({}, "2023-06-01"), ({"Anthropic-Version": "2027-01-01"}, "2027-01-01")]
)
def test_the_operators_headers_come_before_the_usual_ones(own: dict[str, str], sent: str) -> None:
    settings = load_settings(None, {"backend": {"headers": own}}).backend
    heard: list[dict[str, str]] = []

    async def hear(http: Request) -> Response:
        heard.append({name.lower(): value for name, value in http.headers.items()})
        return Response()

    async def ask() -> None:
        app = Starlette(routes=[Route("/v1/models", hear)])
        async with listening(app) as server:
            address = ServerAddress(server.url, "ours")
            usual = {"anthropic-version": "2023-06-01"}
            connection = connection_to(settings, address, key_header="x-api-key", usual=usual)
            await connection.get("/v1/models")
            await connection.close()

    asyncio.run(ask())
    assert (heard[0]["anthropic-version"], heard[0]["x-api-key"]) == (sent, "ours")
