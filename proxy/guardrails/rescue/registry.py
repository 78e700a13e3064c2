"""Every syntax there is, in the order in which they are tried where nothing is known.

Three are no calls: they keep what is addressed to the user, or repeated from a result, from being
read as one.
"""

from collections.abc import Iterable
from functools import cache

from proxy.guardrails.formats.gemma import BareGemma, BareGemmaInText, Gemma
from proxy.guardrails.formats.hermes import HERMES
from proxy.guardrails.formats.mistral import Mistral
from proxy.guardrails.formats.react import ReAct
from proxy.guardrails.rescue.marks import INVENTED_RESULTS
from proxy.guardrails.rescue.syntax import NotACall, Place, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.argument_pairs import (
    ArgumentPairs,
    SuffixedPairs,
    SuffixedPairsAtStart,
)
from proxy.guardrails.rescue.syntaxes.line_blocks import LineBlocks
from proxy.guardrails.rescue.syntaxes.marked_json import FAMILIES, Apertus, ToolsTag
from proxy.guardrails.rescue.syntaxes.named_json import (
    DEEPSEEK,
    DEEPSEEK_PLAIN,
    HARMONY,
    HARMONY_START,
    KIMI,
    KIMI_START,
    PLAMO,
    SOLAR,
    Functionary,
    FunctionaryHeader,
    FunctionaryInText,
)
from proxy.guardrails.rescue.syntaxes.plain_json import BareJson, FencedJson, UnopenedJson
from proxy.guardrails.rescue.syntaxes.pythonic import MarkedPython, PythonList, PythonReply
from proxy.guardrails.rescue.syntaxes.xml_tags import (
    ATTRIBUTED_TAGS,
    FUNCTION_TAGS,
    INVOKE,
    QWEN_CODER,
    KimiK3,
    NamedTags,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Literals

_ENDS = Literals(("<|eot|>", "<|eom|>", "<|end|>", "<|start|>", "<|return|>"))
_RECIPIENT = "to=user<|message|>"


class Addressed(Syntax):
    """Not a call but its opposite: what stands in such a message is shown, never run."""

    name = "addressed"
    openings: tuple[str, ...] = (f" {_RECIPIENT}", f"<|start|>assistant {_RECIPIENT}")

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.take_until(_ENDS)
        return NotACall(Reason.QUOTED)


class AddressedAtStart(Addressed):
    """The same where a reply begins within the header."""

    name = "addressed_at_start"
    openings = (_RECIPIENT,)
    place = Place.REPLY_START


class RepeatedResult(Syntax):
    """What a model repeats of a tool's result is the tool's; behind a call it is dropped."""

    name = "repeated_result"
    openings = tuple(INVENTED_RESULTS)
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        end = INVENTED_RESULTS[opening]
        yield from cursor.take_until(end)
        yield from cursor.one_of(end)
        return NotACall(Reason.QUOTED)


_MARKED: tuple[Syntax, ...] = (
    HERMES,
    QWEN_CODER,
    ArgumentPairs(),
    INVOKE,
    FUNCTION_TAGS,
    Gemma(),
    Mistral(),
    KIMI,
    KimiK3(),
    DEEPSEEK,
    DEEPSEEK_PLAIN,
    HARMONY,
    HARMONY_START,
    PLAMO,
    SOLAR,
    *FAMILIES,
    MarkedPython(),
    Apertus(),
    NamedTags(),
    ATTRIBUTED_TAGS,
    FunctionaryHeader(),
    SuffixedPairs(),
    ToolsTag(),
)
SYNTAXES: tuple[Syntax, ...] = (
    *_MARKED,
    Addressed(),
    AddressedAtStart(),
    RepeatedResult(),
    KIMI_START,
    SuffixedPairsAtStart(),
    FencedJson(_MARKED),
    BareJson(),
    UnopenedJson(),
    PythonReply(),
    PythonList(),
    BareGemma(),
    BareGemmaInText(),
    Functionary(),
    FunctionaryInText(),
    ReAct(),
    LineBlocks(),
)


def order_syntaxes(names: Iterable[str]) -> tuple[Syntax, ...]:
    """Return every syntax, those named by a profile first; unknown names raise KeyError."""
    return _order_syntaxes(tuple(names))


@cache  # profiles name a few orders, and every request asks
def _order_syntaxes(names: tuple[str, ...]) -> tuple[Syntax, ...]:
    known = {syntax.name: syntax for syntax in SYNTAXES}
    first = {name: known[name] for name in names}
    return tuple((first | known).values())
