"""Runs the examples of a documentation page against a backend of the test."""

import re
from collections.abc import Mapping
from pathlib import Path

_GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_LOOPS = "loops.md"
_SECTION = re.compile(r"^#{2,3} (.+?)\n(.*?)(?=^#{2,3} |\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOOLS = "The tools of all examples"


def examples(page: str = _LOOPS) -> dict[str, str]:
    """Return the code of each section that contains an example."""
    sections = _SECTION.findall((_GUIDES / page).read_text(encoding="utf-8"))
    return {title: "\n".join(code) for title, text in sections if (code := _CODE.findall(text))}


def run(title: str, *, page: str = _LOOPS, **replaced: str) -> Mapping[str, object]:
    """Run an example and return its globals.

    `replaced` maps a text of the example to its replacement. `url` replaces the address of the
    server, which the example uses if it sends requests.
    """
    blocks = examples(page)
    code = f"{blocks[_TOOLS]}\n{blocks[title]}"
    if "url" in replaced:
        replaced["http://127.0.0.1:8080"] = replaced.pop("url")
    for theirs, ours in replaced.items():
        assert theirs in code
        code = code.replace(theirs, ours)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, f"{page}: {title}", "exec"), names)  # noqa: S102 - our own guide
    return names
