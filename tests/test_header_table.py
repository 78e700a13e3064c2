import re
from pathlib import Path

from tests.header_table import HEADERS

PACKAGE = Path(__file__).parents[1] / "proxy"
NAMES = [one.name for one in HEADERS]


def test_every_header_of_ours_is_in_the_table() -> None:
    used = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"\"(x-temper-[a-z-]+)\"", path.read_text(encoding="utf-8"))
    }
    assert used == {name for name in NAMES if name.startswith("x-temper-")}
    assert len(NAMES) == len(set(NAMES))
