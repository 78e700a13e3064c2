"""Reads the file of API keys and their owners.

Each line is a name and a key:

    # people
    alice  sk-3f9a0c
    bob    sk-77d1e2
"""

import re
from pathlib import Path

from proxy.errors import InvalidConfiguration
from proxy.files import read_text

_SETTING = "server.api_keys_file"
_LINE = re.compile(r"(?P<name>\S+)\s+(?P<key>[!-~]+)")


def read_keys(path: Path) -> dict[str, str]:
    """Read keys by the names of their owners.

    Raises `InvalidConfiguration` with the number of an invalid line. The message does not contain
    the line, which may be a key.
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
