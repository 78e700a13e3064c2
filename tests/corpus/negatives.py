"""Hard negatives (replies with an unintended call), one file for each reason.

A reply follows a line with its title. If a call in the reply is intended, an arrow after the title
introduces its name and arguments, and the client may receive only this call.
"""

from functools import cache
from pathlib import Path

from proxy.conversation import json
from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import Case, ask
from tests.corpus.spellings import Call

FOLDER = Path(__file__).with_name("negatives")
_MARK = "=== "
_ARROW = " => "


@cache
def negatives() -> dict[str, list[Case]]:
    """Return the cases of every file."""
    return {path.stem: _cases_in(path) for path in sorted(FOLDER.glob("*.txt"))}


def _cases_in(path: Path) -> list[Case]:
    first, *entries = f"\n{path.read_text(encoding='utf-8')}".split(f"\n{_MARK}")
    assert not first, f"{path} begins with something else than a title"
    return [_case(*entry.partition("\n")) for entry in entries]


def _case(head: str, _: str, reply: str) -> Case:
    title, _, meant = head.partition(_ARROW)
    name, _, markup = meant.partition(" ")
    arguments = json.parse(markup or "{}")
    assert isinstance(arguments, dict)
    calls: tuple[Call, ...] = ((name, arguments),) if name else ()
    return Case(title, reply.removesuffix("\n"), ask(), calls, TextPolicy.ACCEPT)
