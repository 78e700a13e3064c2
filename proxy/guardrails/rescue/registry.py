"""Every syntax there is, in the order in which they are tried where nothing is known."""

from collections.abc import Iterable

from proxy.guardrails.rescue.bare_json import BareJson
from proxy.guardrails.rescue.fenced_json import FencedJson
from proxy.guardrails.rescue.hermes import Hermes
from proxy.guardrails.rescue.mistral import Mistral
from proxy.guardrails.rescue.qwen_coder import QwenCoder
from proxy.guardrails.rescue.syntax import Syntax

SYNTAXES: tuple[Syntax, ...] = (
    Hermes(),
    QwenCoder(),
    Mistral(),
    FencedJson(),
    BareJson(),
)


def in_order(names: Iterable[str]) -> tuple[Syntax, ...]:
    """Return every syntax, those named by a profile first; unknown names raise KeyError."""
    known = {syntax.name: syntax for syntax in SYNTAXES}
    first = {name: known[name] for name in names}
    return tuple((first | known).values())
