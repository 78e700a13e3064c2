"""All targets with installed requirements."""

import importlib
import importlib.util
from collections.abc import Mapping

from tests.fuzz.targets import Target

# the modules with targets, and their required library
_MODULES: Mapping[str, str] = {
    "requests": "",
    "structured_calls": "",
    "texts": "",
    "marks": "",
    "engines": "",
    "meanings": "",
    "connections": "",
    "tool_servers": "mcp",
    "stores": "cryptography",
    "valkey_server": "valkey",
    "files": "",
}


def targets() -> tuple[list[Target], list[str]]:
    """Return the available targets, and a line for each module without its library."""
    targets: list[Target] = []
    missing: list[str] = []
    for name, library in _MODULES.items():
        if library and importlib.util.find_spec(library) is None:
            missing.append(f"{name.replace('_', ' ')}: left out, as {library} is not installed")
        else:
            targets += importlib.import_module(f"tests.fuzz.{name}").TARGETS
    return targets, missing
