"""Flags in groups, near names, and completion of what was begun."""

import click
import pytest
from click.testing import CliRunner

from proxy.cli.app import main
from proxy.cli.usage import ServeCommand
from tests.fakes.invoked import temper


def told(*arguments: str) -> str:
    return temper(*arguments).output


def test_the_flags_of_serve_stand_in_groups_and_none_is_lost() -> None:
    serve = main.commands["serve"]
    assert isinstance(serve, ServeCommand)
    shown = told("serve", "--help")
    places = [shown.index(f"{title}:") for title in (*ServeCommand.groups, "Other options")]
    assert places == sorted(places)
    visible = [one for one in serve.params if isinstance(one, click.Option) and not one.hidden]
    assert all(shown.count(f"  {one.opts[0]} ") == 1 for one in visible)


@pytest.mark.parametrize(("typo", "meant"), [("--prot", "--port"), ("--hots", "--host")])
def test_a_near_flag_is_proposed(typo: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in told("serve", typo, "1")


@pytest.mark.parametrize("stranger", ["--bogus", "--frobnicate"])
def test_nothing_is_proposed_for_what_is_like_no_flag(stranger: str) -> None:
    shown = told("serve", stranger)
    assert f"No such option '{stranger}'." in shown
    assert "mean" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_told_and_works(shell: str) -> None:
    assert "_TEMPER_COMPLETE=bash_source temper" in told("--help")
    environment = {"_TEMPER_COMPLETE": f"{shell}_source"}
    result = CliRunner(env=environment).invoke(main, [], prog_name="temper")
    assert result.exit_code == 0
    assert "_TEMPER_COMPLETE" in result.stdout
