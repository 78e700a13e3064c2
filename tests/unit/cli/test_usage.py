"""Grouped flags, suggestions for misspelled flags, and shell completion."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proxy.cli import usage
from proxy.cli.app import main
from proxy.cli.usage import ServeCommand
from tests.fakes.invoked import temper


def help_text(*arguments: str) -> str:
    return temper(*arguments).output


def test_the_help_of_serve_lists_every_flag_once_and_in_groups() -> None:
    serve = main.commands["serve"]
    assert isinstance(serve, ServeCommand)
    output = help_text("serve", "--help")
    places = [output.index(f"{title}:") for title in (*ServeCommand.groups, "Other options")]
    assert places == sorted(places)
    visible = [
        param for param in serve.params if isinstance(param, click.Option) and not param.hidden
    ]
    assert all(output.count(f"  {option.opts[0]} ") == 1 for option in visible)


@pytest.mark.parametrize(("typo", "flag"), [("--prot", "--port"), ("--hots", "--host")])
def test_the_similar_flag_is_suggested_for_a_misspelled_flag(typo: str, flag: str) -> None:
    assert f"Did you mean '{flag}'?" in help_text("serve", typo, "1")


@pytest.mark.parametrize("unknown_flag", ["--bogus", "--frobnicate"])
def test_an_unrelated_flag_gets_no_suggestion(unknown_flag: str) -> None:
    output = help_text("serve", unknown_flag)
    assert f"No such option '{unknown_flag}'." in output
    assert "mean" not in output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_each_shell_is_printed(shell: str) -> None:
    assert "_TEMPER_COMPLETE=bash_source temper" in help_text("--help")
    environment = {"_TEMPER_COMPLETE": f"{shell}_source"}
    result = CliRunner(env=environment).invoke(main, [], prog_name="temper")
    assert result.exit_code == 0
    assert "_TEMPER_COMPLETE" in result.stdout


@pytest.fixture
def fresh_lookup() -> Iterator[None]:
    usage._entry_points.cache_clear()  # noqa: SLF001 - each test starts with an empty cache
    yield
    usage._entry_points.cache_clear()  # noqa: SLF001


@pytest.mark.usefixtures("fresh_lookup")
def test_a_command_of_a_missing_package_is_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "find_spec", lambda _name: None)
    for command in ("demo", "eval"):
        result = temper(command)
        assert result.exit_code == 2
        assert f"'temper {command}' requires the package temper_evals" in result.stderr
    assert "No such command 'demmo'" in temper("demmo").stderr
    assert "eval" not in help_text("--help").partition("Commands:")[2].partition("New here?")[0]


@pytest.mark.usefixtures("fresh_lookup")
def test_a_checkout_that_is_not_installed_has_all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "entry_points", lambda **_group: ())
    assert "Show tool calls of a model" in help_text("demo", "--help")
    assert "Measure how much Temper helps" in help_text("eval", "--help")


@pytest.mark.usefixtures("fresh_lookup")
def test_built_in_commands_work_without_entry_points_and_without_temper_evals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(usage, "entry_points", lambda **_group: ())
    monkeypatch.setattr(usage, "__file__", str(tmp_path / "proxy/cli/usage.py"))
    assert "requires the package temper_evals" in temper("demo").stderr
    assert temper("version").exit_code == 0


def test_built_in_commands_look_up_no_entry_points() -> None:
    program = """
import sys, importlib.metadata
from proxy.cli.app import main
def refuse(**_group): raise AssertionError
sys.modules["proxy.cli.usage"].entry_points = refuse
main(["serve", "--help"])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "temper_evals" not in ran.stderr
