from pathlib import Path

import pytest

from proxy.cli.running import FAILED, fail, load, run
from proxy.cli.usage import Command
from proxy.conversation import json
from proxy.errors import InvalidConfiguration


async def finish(is_done: bool) -> bool:
    return is_done


async def fail_with_error() -> bool:
    raise InvalidConfiguration("mcp.x", "is wrong")


def test_run_exits_with_the_given_code_if_the_work_returns_false() -> None:
    run(finish(True))
    with pytest.raises(SystemExit) as ended:
        run(finish(False), 7)
    assert ended.value.code == 7


def test_an_error_is_printed_as_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command("break", callback=lambda: run(fail_with_error()))
    with pytest.raises(SystemExit) as ended:
        command([])
    assert (ended.value.code, capsys.readouterr().err) == (FAILED, "temper: mcp.x: is wrong\n")
    with pytest.raises(SystemExit):
        fail(InvalidConfiguration("a", "b"), as_json=True, details={"more": 1})
    printed = json.parse(capsys.readouterr().out)
    assert printed == {"ok": False, "error": "a: b", "more": 1}


def test_load_exits_if_the_settings_are_invalid(tmp_path: Path) -> None:
    file = tmp_path / "temper.toml"
    file.write_text("[server]\nport = 'x'\n", "utf-8")
    with pytest.raises(SystemExit):
        Command("read", callback=lambda: load(file))([])
