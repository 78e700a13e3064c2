import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.doctor.checks import (
    CHECKS,
    MACHINE,
    check_address,
    examine,
    find_distributions,
    judge_descriptors,
    judge_memory,
    judge_package_name,
    judge_tool_servers,
)
from proxy.doctor.target import CheckResult, Severity, Target
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import Device, Memory
from proxy.mcp.inspection import InspectedServer
from proxy.mcp.specification import ServerSpec
from proxy.settings import Settings
from tests.fakes.ailing import AilingServer, Ailment, examined
from tests.fakes.loopback import own_address
from tests.fakes.sockets import listening
from tests.fakes.tool_servers import served


def test_a_limit_of_open_files_too_low_for_a_full_queue_is_a_warning() -> None:
    result = judge_descriptors(256, 256)
    assert result.status == "warn"
    assert "ulimit -n 576" in result.remedy


def test_a_sufficient_or_unlimited_number_of_open_files_is_ok() -> None:
    assert judge_descriptors(576, 256).status == "ok"
    assert "unlimited" in judge_descriptors(-1, 256).summary


def test_the_check_of_open_files_uses_the_limit_of_this_process() -> None:
    settings = Settings.model_validate({"server": {"max_waiting": 1}})
    many = Settings.model_validate({"server": {"max_waiting": 10**9}})
    assert MACHINE["open files"](settings).status == "ok"
    assert MACHINE["open files"](many).status == "warn"


def test_another_distribution_with_a_package_named_proxy_is_a_warning() -> None:
    assert judge_package_name(["temper-proxy"]).status == "ok"
    result = judge_package_name(["temper-proxy", "proxy.py"])
    assert result.status == "warn"
    assert result.summary.startswith("proxy.py also installs a package `proxy`")
    assert "pipx install temper-proxy" in result.remedy


@pytest.mark.parametrize(
    ("file", "text", "is_owner"),
    [
        ("RECORD", "proxy/__init__.py,,\n", True),
        ("RECORD", "other.py,,\nproxy/a/b.py,sha256=1,2\n", True),
        ("RECORD", "other/proxy/__init__.py,,\nproxy.py,,\nproxyish/__init__.py,,\n", False),
        ("top_level.txt", "other\nproxy\n", True),
        ("top_level.txt", "proxyish\n", False),
        ("entry_points.txt", "", False),
    ],
)
def test_find_distributions_returns_the_distribution_that_lists_files_of_the_package(
    tmp_path: Path, file: str, text: str, *, is_owner: bool
) -> None:
    folder = tmp_path / "some-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some\n", encoding="utf-8")
    (folder / file).write_text(text, encoding="utf-8")
    assert [*find_distributions("proxy", [str(tmp_path)])] == (["some"] if is_owner else [])


def test_the_package_check_is_ok_in_this_environment() -> None:
    assert MACHINE["package"](Settings()).status == "ok"


def test_the_memory_check_reports_free_main_memory_and_free_gpu_memory() -> None:
    assert "main memory" in MACHINE["memory"](Settings()).summary
    device = Device("GPU 0", 24 << 30, 1 << 20)
    result = judge_memory(Memory(64 << 30, 32 << 30, (device,)))
    assert result.status == "ok"
    assert (
        result.summary
        == "32.0 GiB of 64.0 GiB of main memory and 1.0 MiB of 24.0 GiB of GPU 0 are free"
    )


def test_one_mebibyte_of_free_memory_is_a_warning() -> None:
    result = judge_memory(Memory(8 << 30, 1 << 20))
    assert result.status == "warn"
    assert result.summary == "1.0 MiB of 8.0 GiB of main memory is free"


def test_the_address_check_says_who_can_reach_temper_and_whether_a_key_is_required() -> None:
    assert "this machine only" in check_address(Settings()).summary
    settings = {"server": {"host": "0.0.0.0", "api_key": "secret"}}
    assert "an API key is required" in check_address(Settings.model_validate(settings)).summary


def test_an_ollama_port_in_use_is_a_warning() -> None:
    host = own_address()
    with socket.create_server((host, 0)) as listener:
        port = int(listener.getsockname()[1])
        server = {"host": host, "ollama_port": port, "api_key": "secret"}
        settings = Settings.model_validate({"server": server})
        result = check_address(settings)
    assert (result.status, f"port {port} (server.ollama_port)" in result.summary) == ("warn", True)
    assert "stop the Ollama that uses it" in result.remedy
    assert check_address(settings).summary.endswith(f"and on port {port} for Ollama clients")


def server(name: str, *tools: str, state: str = "ready", problem: str = "") -> InspectedServer:
    offered = tuple(served(tool, name) for tool in tools)
    return InspectedServer(ServerSpec(name), state, problem=problem, offered=offered)


@pytest.mark.parametrize(
    ("servers", "window", "status", "summary"),
    [
        ((server("a", "x"), server("b", "y")), 8192, "ok", "2 tools of 2 servers"),
        ((server("a", "x"),), None, "ok", "1 tools of 1 servers"),
        ((server("a", state="down", problem="ended"),), None, "fail", "a ended"),
        ((server("a", state="starting"),), None, "fail", "a is starting"),
        ((server("a", "x"), server("b", "x")), None, "warn", "two servers have a tool 'x'"),
        ((server("a", *map(str, range(21))),), None, "warn", "21 tools"),
        ((server("a", "x", "y"),), 100, "warn", "2 tools"),
    ],
)
def test_the_check_fails_for_unready_tool_servers_and_warns_of_too_many_or_duplicate_tools(
    servers: tuple[InspectedServer, ...], window: int | None, status: Severity, summary: str
) -> None:
    result = judge_tool_servers(servers, window)
    assert result.status is status
    assert summary in result.summary


def test_warnings_of_a_tool_server_are_in_the_summary() -> None:
    with_warning = InspectedServer(ServerSpec("a"), "ready", warnings=("has no tool 'x'",))
    assert judge_tool_servers((with_warning,), None).summary == "a has no tool 'x'"


async def test_a_healthy_server_passes_all_checks_in_order() -> None:
    results = await examined(Ailment.NONE)
    assert list(results) == [*MACHINE, *(check.title for check in CHECKS)]
    of_the_server = [result.status for title, result in results.items() if title not in MACHINE]
    assert of_the_server == ["ok"] * len(CHECKS), results


async def test_readiness_fails_and_no_further_check_is_made_if_the_server_is_unreachable() -> None:
    url = f"http://{own_address()}:9"
    settings = Settings.model_validate({"backend": {"url": url}})
    results = [result async for result in examine(settings)]
    assert results[-1].title == "readiness"
    assert results[-1].finding.status == "fail"
    assert url in results[-1].finding.summary


async def test_examine_raises_invalid_configuration_if_neither_a_server_nor_a_model_is_set() -> (
    None
):
    with pytest.raises(InvalidConfiguration, match="nothing to serve"):
        _ = [result async for result in examine(Settings())]


async def test_the_checks_authenticate_if_server_api_key_is_set() -> None:
    results = await examined(Ailment.NONE, {"server": {"api_key": "secret"}})
    assert results["forced call"].status == "ok"


async def test_one_of_two_models_fails_to_start_and_the_other_passes_all_checks(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    async with listening(AilingServer(Ailment.NONE).app) as server:
        models = {"good": {"url": server.url}, "bad": {"path": str(broken)}}
        settings = Settings.model_validate({"models": models})
        results = [result async for result in examine(settings)]
    good = [result.finding.status for result in results if result.model == "good"]
    assert good == ["ok"] * len(CHECKS)
    (bad,) = (result for result in results if result.model == "bad")
    assert (bad.title, bad.finding.status) == ("start", "fail")
    assert "not a GGUF file" in bad.finding.summary


async def test_the_checks_authenticate_if_server_api_keys_file_is_set(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice sk-1", encoding="utf-8")
    results = await examined(Ailment.NONE, {"server": {"api_keys_file": str(keys)}})
    assert results["forced call"].status == "ok"


async def test_the_hook_on_results_is_called_only_for_a_model_that_completed_its_checks() -> None:
    stored: list[tuple[str, list[str]]] = []

    def keep(target: Target, results: Sequence[CheckResult]) -> None:
        stored.append((target.model, [result.title for result in results]))

    for ailment in (Ailment.SMALL_WINDOW, Ailment.LOADS_FOR_EVER):
        async with listening(AilingServer(ailment).app) as server:
            settings = Settings.model_validate({"backend": {"url": server.url}})
            _ = [result async for result in examine(settings, on_results=keep)]
    assert stored == [("tiny", [check.title for check in CHECKS])]
