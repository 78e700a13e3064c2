"""Reads the file of API keys and their owners."""

import re
from pathlib import Path

from proxy.errors import InvalidConfiguration
from proxy.files import read_text

_SETTING = "server.api_keys_file"
_LINE = re.compile(r"(?P<name>\S+)\s+(?P<key>[!-~]+)")


def read_keys(path: Path) -> dict[str, str]:
    """Read keys by the names of their owners.

    A line is `name key`; empty lines and those that begin with `#` do not count. Raises
    `InvalidConfiguration` with the number of a line that is neither, never with its text.
    """
    lines = read_text(path, _SETTING).splitlines()
    keys: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match["name"] in keys:
            problem = (
                "must be 'name key'" if match is None else "repeats the name of an earlier line"
            )
            raise InvalidConfiguration(_SETTING, f"line {number} of {path} {problem}")
        keys[match["name"]] = match["key"]
    if not keys:
        raise InvalidConfiguration(_SETTING, f"{path} contains no key: add a line 'name key'")
    return keys
