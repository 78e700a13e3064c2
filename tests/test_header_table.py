import re
from pathlib import Path

from tests.header_table import HEADERS

PACKAGE = Path(__file__).parents[1] / "proxy"
NAMES = [header.name for header in HEADERS]
# the keys of `facts.report`, which name headers
REPORTED = {
    f"x-temper-{name}"
    for name in ("attempts", "outcome", "repairs", "context", "tools", "fallback")
}


def test_every_x_temper_header_in_the_code_is_in_the_table() -> None:
    used = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"\"(x-temper-[a-z-]+)\"", path.read_text(encoding="utf-8"))
    }
    assert used | REPORTED == {name for name in NAMES if name.startswith("x-temper-")}
    assert len(NAMES) == len(set(NAMES))
