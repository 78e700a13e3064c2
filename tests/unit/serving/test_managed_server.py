import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.hardware.fit import Device, Memory
from proxy.hardware.shape import Layer, ModelShape
from proxy.processes.model_file import ModelFile
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.serving.managed_server import (
    alias_of,
    choose_window,
    connection_to,
    fit_window,
    launch_plan,
    memory_for,
    model_file,
    ollama_fitting,
    ollama_window,
    recognize_file,
    slot_cache,
    supervisor,
)
from proxy.settings import Settings, load_settings
from proxy.settings.sections import Context, Model
from tests.fakes.llama import CONTEXT_TOKENS, build_model
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
def test_the_command_of_a_server_has_flags_from_the_settings_and_the_profile(
    program: Path, model: dict[str, object], command: str
) -> None:
    settings = settings_of(model={**model, "server": str(program)})
    command_line = " ".join(launch_plan(settings).command())
    for same in ("--host 127.0.0.1 ", "--jinja --no-webui --slots --metrics "):
        assert same in command_line
        command_line = command_line.replace(same, "")
    assert (
        command_line.replace(" --jinja --no-webui --slots --metrics", "") == f"{program} {command}"
    )


def test_creating_a_supervisor_does_not_start_the_server(program: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    settings = settings_of(model={"path": str(model), "server": str(program)})
    server = supervisor(settings)
    assert (server.name, server.status.state) == ("llama-server/m", RestartState.STOPPED)


def test_supervisor_refuses_a_missing_model_file(program: Path, tmp_path: Path) -> None:
    settings = settings_of(model={"path": str(tmp_path / "none.gguf"), "server": str(program)})
    with pytest.raises(LaunchFailed, match="does not exist"):
        supervisor(settings)


def test_a_model_to_download_is_identified_by_its_repository() -> None:
    model = settings_of(model={"hf_repo": "owner/Qwen3-8B-GGUF"}).model
    assert model_file(model) == ModelFile(("owner/Qwen3-8B-GGUF",))
    assert alias_of(model) == "Qwen3-8B-GGUF"


def test_a_model_file_is_recognized_by_the_configured_alias_or_by_its_own_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "falcon.toml").write_text(OWN_PROFILE, encoding="utf-8")
    settings = settings_of(profile={"folder": str(tmp_path)}, model={"alias": "falcon-x1"})
    known = recognize_file(settings, ModelFile(("model.gguf",)))
    assert (known.model, known.recognition.profile.name) == ("model.gguf", "falcon")
    assert recognize_file(Settings(), ModelFile(("m",), "qwen3")).quirks.syntaxes


@pytest.mark.parametrize(
    ("headers", "sent"), [({}, "2023-06-01"), ({"Anthropic-Version": "2027-01-01"}, "2027-01-01")]
)
async def test_configured_headers_take_precedence_over_default_headers(
    headers: dict[str, str], sent: str
) -> None:
    settings = load_settings(None, {"backend": {"headers": headers}}).backend
    received: list[dict[str, str]] = []

    async def record_headers(http: Request) -> Response:
        received.append({name.lower(): value for name, value in http.headers.items()})
        return Response()

    app = Starlette(routes=[Route("/v1/models", record_headers)])
    async with listening(app) as server:
        address = ServerAddress(server.url, "ours")
        defaults = {"anthropic-version": "2023-06-01"}
        connection = connection_to(
            settings, address, key_header="x-api-key", default_headers=defaults
        )
        await connection.fetch("/v1/models")
        await connection.close()
    assert (received[0]["anthropic-version"], received[0]["x-api-key"]) == (sent, "ours")


GIB = 1 << 30
FILE = ModelFile(("some.gguf",), shape=ModelShape(5 * GIB, (Layer(8, 128, 128),) * 36, 40_960))
MODEL = Model(slots=2)


def window(budget: str, free: int, window_tokens: int = 0) -> int:
    context = Context.model_validate({"budget": budget, "window_tokens": window_tokens})
    return fit_window(MODEL, context, FILE, Memory(64 * GIB, free))


@pytest.mark.parametrize("budget", ["backend", "manual"])
def test_budgets_backend_and_manual_keep_the_configured_window(budget: str) -> None:
    settings = settings_of(
        model={"path": "some.gguf", "context_tokens": 5000},
        context={"budget": budget, "window_tokens": 5000},
    )
    assert choose_window(settings) == settings


def test_budget_full_chooses_the_largest_fitting_window_and_budget_fast_half_of_it() -> None:
    assert window("full", 60 * GIB) == 40_960
    assert window("fast", 60 * GIB) == 20_480
    full = window("full", 12 * GIB)
    assert 8192 < full < 40_960
    assert window("fast", 12 * GIB) == full // 2 // 256 * 256


def test_budget_fast_does_not_halve_a_window_of_256_tokens() -> None:
    small = ModelFile(("some.gguf",), shape=ModelShape(GIB, (), 300))
    context = Context.model_validate({"budget": "fast"})
    assert fit_window(MODEL, context, small, Memory(9 * GIB, 9 * GIB)) == 256


def test_window_tokens_limits_the_chosen_window() -> None:
    assert window("full", 60 * GIB, 10_000) == 10_000
    assert window("fast", 60 * GIB, 30_000) == 20_480


def test_the_error_for_a_model_that_does_not_fit_has_needed_and_free_memory() -> None:
    with pytest.raises(InvalidConfiguration, match=r"needs 5\.0 GiB, but only 3\.6 GiB"):
        window("full", 4 * GIB)


def test_budget_full_for_a_file_of_unknown_dimensions_is_refused_with_a_remedy() -> None:
    context = Context.model_validate({"budget": "full"})
    with pytest.raises(InvalidConfiguration, match=r"set model\.context_tokens") as raised:
        fit_window(MODEL, context, ModelFile(("some.gguf",)), Memory(GIB, GIB))
    assert raised.value.setting == "context.budget"


def test_choose_window_sets_the_window_that_fits_the_memory_of_this_machine(tmp_path: Path) -> None:
    model = build_model(tmp_path / "model.gguf")
    model_settings = {"path": model, "context_tokens": 300}
    settled = choose_window(settings_of(model=model_settings, context={"budget": "full"}))
    assert settled.model.context_tokens == CONTEXT_TOKENS
    assert settled.context.budget == "backend"


@pytest.mark.parametrize("lists", ["  CUDA0: some GPU", ""])
def test_devices_that_the_server_program_does_not_list_are_not_used(lists: str) -> None:
    gpu = Device("some GPU", GIB, GIB)
    program = (sys.executable, "-c", f"print('Available devices:'); print({lists!r})")
    used = memory_for(program, Memory(GIB, GIB, (gpu,)))
    assert used == (Memory(GIB, GIB, (gpu,)) if lists else Memory(GIB, GIB, unused=(gpu,)))


METADATA: JsonObject = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 36,
    "qwen3.context_length": 40_960,
    "qwen3.embedding_length": 4096,
    "qwen3.attention.head_count": 32,
    "qwen3.attention.head_count_kv": 8,
    "tokenizer.ggml.tokens": None,
}


@pytest.mark.parametrize(("free", "window"), [(40, 40_960), (9, 20_992), (6, 4096), (1, 4096)])
def test_an_ollama_model_gets_the_fitting_window_and_at_least_the_default(
    free: int, window: int
) -> None:
    memory = Memory(6 * GIB, 0, (Device("some GPU", 22 * GIB, free * GIB),))
    assert ollama_window(METADATA, 5 * GIB, memory) == window


@pytest.mark.parametrize(
    "details",
    [{}, {**METADATA, "qwen3.attention.head_count_kv": None}, {**METADATA, "qwen3.x": []}],
)
def test_an_ollama_model_with_too_little_metadata_keeps_the_default(details: JsonObject) -> None:
    assert ollama_window(details, GIB, Memory(99 * GIB, 99 * GIB)) is None


def test_ollama_window_uses_the_memory_of_this_machine_by_default() -> None:
    assert ollama_window({**METADATA, "qwen3.context_length": 1000}, 1000) in {768, 1000}


@pytest.mark.parametrize(
    ("budget", "url", "decides"),
    [
        ("full", "http://127.0.0.1:11434", True),
        ("fast", "http://localhost:11434", True),
        ("backend", "http://127.0.0.1:11434", False),
        ("full", "http://192.168.1.2:11434", False),
    ],
)
def test_the_window_is_chosen_for_a_local_ollama_and_budget_full_or_fast(
    budget: str, url: str, *, decides: bool
) -> None:
    settings = load_settings(None, {"context": {"budget": budget}})
    assert (ollama_fitting(settings, url) is not None) is decides


def test_choose_window_refuses_a_missing_file_and_a_model_to_download(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    full: dict[str, object] = {"budget": "full"}
    with pytest.raises(LaunchFailed, match="does not exist"):
        choose_window(settings_of(model={"path": path}, context=full))
    with pytest.raises(InvalidConfiguration, match="dimensions"):
        choose_window(settings_of(model={"hf_repo": "owner/to-download"}, context=full))


def test_prompt_caches_are_stored_in_a_private_folder(tmp_path: Path, program: Path) -> None:
    folder = tmp_path / "prompts"
    configured = settings_of(
        model={"path": "qwen3-8b.gguf", "server": str(program)},
        prompt_cache={"folder": str(folder), "max_mb": 2},
    )
    cache = slot_cache(configured)
    assert cache is not None
    assert (cache.name, cache.folder, cache.most_bytes) == (
        "llama-server/qwen3-8b", folder, 2_000_000,
    )  # fmt: skip
    assert folder.stat().st_mode & 0o777 == 0o700
    assert launch_plan(configured).command()[-2:] == ("--slot-save-path", str(folder))
    assert slot_cache(settings_of()) is None


def test_a_prompt_cache_folder_must_not_be_accessible_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(InvalidConfiguration, match="is open to other users; run chmod 700"):
        slot_cache(settings_of(prompt_cache={"folder": str(tmp_path)}))


def test_a_prompt_cache_folder_that_cannot_be_created_is_an_error(program: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be used: Not a directory"):
        slot_cache(settings_of(prompt_cache={"folder": str(program / "prompts")}))
