import io
import zipfile
from pathlib import Path
from typing import cast

import httpx
import pytest
from msgspec import structs

from proxy.cli.safe_console import SafeConsole
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.doctor.report import (
    build_tried_document,
    build_tried_model,
    describe_tried,
    document,
    has_no_failure,
    line,
    summary,
    write_bundle,
)
from proxy.doctor.target import CheckResult, Target, fail, ok, skip, warn
from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import GENERIC
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC as PROFILE
from proxy.profiles.recognition import Evidence, Recognition
from proxy.profiles.tried_models import TriedModel, digest
from proxy.settings import Settings
from tests.fakes.hostile_text import HOSTILE, has_control

PASSED = CheckResult("one", ok("well"), "m")
WARNED = CheckResult("two", warn("hm", "do this"), "m")
FAILED = CheckResult("three", fail("ill", "do that"), "m")
UNKNOWN = CheckResult("four", skip("cannot tell"), "m")


def test_a_warning_has_its_remedy_on_the_next_line() -> None:
    assert line(PASSED, [WARNED]).plain.split() == ["ok", "one", "well"]
    first, second = line(WARNED, [PASSED]).plain.splitlines()
    assert first.split() == ["warn", "two", "hm"]
    assert second.strip() == "-> do this"


def test_the_name_of_a_model_is_printed_above_its_first_finding() -> None:
    of_the_machine = CheckResult("open files", ok("well"))
    assert line(PASSED, [of_the_machine]).plain.split() == ["m", "ok", "one", "well"]
    assert line(of_the_machine).plain.split() == ["ok", "open", "files", "well"]


def test_warnings_and_skipped_checks_are_no_failures() -> None:
    assert has_no_failure([PASSED, WARNED, UNKNOWN])
    assert not has_no_failure([PASSED, FAILED])


def test_the_summary_counts_passed_warned_and_failed_checks() -> None:
    assert summary([PASSED, UNKNOWN]) == "All 1 checks passed."
    assert summary([PASSED, WARNED, FAILED]) == "1 checks passed, 1 warned, 1 failed."


def test_the_json_document_has_all_fields_of_each_result() -> None:
    report = document([PASSED, FAILED])
    assert report["ok"] is False
    names = ("model", "check", "status", "found", "remedy", "copy")
    assert report["checks"] == [
        dict(zip(names, values, strict=True))
        for values in (
            ("m", "one", "ok", "well", "", ""),
            ("m", "three", "fail", "ill", "do that", ""),
        )
    ]


def test_lines_to_copy_are_printed_unchanged_below_the_result() -> None:
    copied = CheckResult("four", ok("set this:", "a = 1\nb = 2"), "m")
    assert line(copied, [PASSED]).plain.endswith("set this:\n\na = 1\nb = 2\n")


CANARY = "sk-canary-5up3r"


def test_the_bundle_contains_no_secret_and_no_home_folder(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "server": {"api_key": CANARY},
            "backend": {
                "api_key": f"{CANARY}-2",
                "headers": {"x-team": f"{CANARY}-3"},
                "url": "http://127.0.0.1:1",
            },
            "profile": {"folder": str(Path.home() / "profiles")},
            "context": {"window_tokens": 12345},
        }
    )
    result = CheckResult("forced call", fail(f"the server said: bad key {CANARY}", "look"))
    write_bundle(tmp_path / "bundle.zip", settings, [result])
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        contents = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(contents) == {"findings.json", "settings.json", "environment.json"}
    assert all(CANARY not in text and str(Path.home()) not in text for text in contents.values())
    assert "~/profiles" in contents["settings.json"]
    assert "12345" in contents["settings.json"]
    environment = json.parse(contents["environment.json"])
    assert isinstance(environment, dict)
    assert environment["python"]


def test_a_bundle_path_that_cannot_be_written_raises_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot write"):
        write_bundle(tmp_path / "missing" / "bundle.zip", Settings(), [])


FOUND = (
    CheckResult("version", ok("llama-server, build b1")),
    CheckResult("window", ok("a", window=8192)),
    CheckResult("forced call", ok("b", calls="at once")),
    CheckResult("overflow", fail("c", "d")),
    CheckResult("speed", ok("e", writes_per_second=35.26)),
)


async def measure_model() -> TriedModel:
    known = KnownModel(
        "m",
        Recognition(PROFILE, "none"),
        GENERIC,
        evidence=Evidence(("m",), template="<think>"),
        identity="m.gguf",
        engine="vLLM",
        lacks=("named_choice",),
    )
    async with httpx.AsyncClient() as direct, httpx.AsyncClient() as temper:
        target = Target(Settings(), "m", known, direct, temper, "")
        return build_tried_model(target, FOUND, "1.2")


async def test_build_tried_model_combines_the_measured_values_of_all_checks() -> None:
    tried = await measure_model()
    assert (tried.name, tried.identity, tried.template) == ("m", "m.gguf", digest("<think>"))
    assert (tried.server, tried.temper, tried.failed) == (
        "llama-server, build b1",
        "1.2",
        ("overflow",),
    )
    assert tried.measured == {
        "capabilities": ["tools", "thinking"],
        "engine": "vLLM",
        "engine_lacks": ["named_choice"],
        "window": 8192,
        "calls": "at once",
        "writes_per_second": 35.26,
    }
    assert tried.tried_at.endswith("+00:00")


async def test_describe_tried_prints_one_block_per_model_and_the_document_has_all_values() -> None:
    tried = await measure_model()
    long = structs.replace(
        tried, name="Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL", failed=("overflow", "calls")
    )
    output = io.StringIO()
    SafeConsole(file=output, width=80).print(describe_tried([tried, long]), soft_wrap=True)
    first, second = (block.splitlines() for block in output.getvalue().split("\n\n"))
    assert first == [
        "m",
        "  server llama-server, build b1",
        f"  tried  {tried.tried_at[:10]}",
        "  calls  at once",
        "  window 8192 tokens",
        "  writes 35 tokens/s",
        "  failed overflow",
    ]
    assert (second[0], second[-1]) == (long.name, "  failed overflow, calls")
    (entry,) = cast("list[JsonObject]", build_tried_document([tried])["models"])
    assert (entry["id"], entry["measured"]) == ("m", tried.measured)


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
async def test_control_characters_in_text_of_a_server_do_not_start_a_new_line(text: str) -> None:
    output, plain = await _print_everything(text), await _print_everything("m")
    assert not has_control(output.replace("\n", ""))
    assert len(output.splitlines()) == len(plain.splitlines())


async def _print_everything(text: str) -> str:
    """Print a result and a block with `text` in every field that a server sets."""
    stream = io.StringIO()
    console = SafeConsole(file=stream, width=200)
    console.print(line(CheckResult("calls", fail(text, text), text)), soft_wrap=True)
    console.print(describe_tried([structs.replace(await measure_model(), name=text, server=text)]))
    return stream.getvalue()
