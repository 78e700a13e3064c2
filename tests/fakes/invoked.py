"""The `temper` command within the test process, with its files and its JSON output."""

from pathlib import Path

from click.testing import CliRunner, Result

from proxy.cli.app import main
from proxy.conversation import json


def temper(*arguments: str) -> Result:
    """Run the command to its end."""
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def config(text: str) -> str:
    """Write a settings file into the current folder and return its name."""
    Path("some.toml").write_text(text, encoding="utf-8")
    return "some.toml"


def document(result: Result) -> json.JsonObject:
    """Parse the JSON that the command printed."""
    value = json.parse(result.stdout)
    assert isinstance(value, dict)
    return value
