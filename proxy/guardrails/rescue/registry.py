"""Every syntax there is, in the order in which they are tried where nothing is known."""

from collections.abc import Iterable
from functools import cache

from proxy.guardrails.rescue.addressed import Addressed, AddressedAtStart, RepeatedResult
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.rescue.syntaxes.apertus import Apertus
from proxy.guardrails.rescue.syntaxes.argument_pairs import ArgumentPairs
from proxy.guardrails.rescue.syntaxes.bare_json import BareJson, UnopenedJson
from proxy.guardrails.rescue.syntaxes.fenced_json import FencedJson
from proxy.guardrails.rescue.syntaxes.function_tags import AttributedTags, FunctionTags
from proxy.guardrails.rescue.syntaxes.functionary import (
    Functionary,
    FunctionaryHeader,
    FunctionaryInText,
)
from proxy.guardrails.rescue.syntaxes.gemma import BareGemma, BareGemmaInText, Gemma
from proxy.guardrails.rescue.syntaxes.hermes import Hermes
from proxy.guardrails.rescue.syntaxes.invoke import Invoke
from proxy.guardrails.rescue.syntaxes.kimi_k3 import KimiK3
from proxy.guardrails.rescue.syntaxes.line_blocks import LineBlocks
from proxy.guardrails.rescue.syntaxes.marked_json import FAMILIES
from proxy.guardrails.rescue.syntaxes.mistral import Mistral
from proxy.guardrails.rescue.syntaxes.named_json import (
    DEEPSEEK,
    DEEPSEEK_PLAIN,
    HARMONY,
    HARMONY_START,
    KIMI,
    KIMI_START,
    PLAMO,
    SOLAR,
)
from proxy.guardrails.rescue.syntaxes.named_tags import NamedTags
from proxy.guardrails.rescue.syntaxes.pythonic import MarkedPython, PythonList, PythonReply
from proxy.guardrails.rescue.syntaxes.qwen_coder import QwenCoder
from proxy.guardrails.rescue.syntaxes.react import ReAct
from proxy.guardrails.rescue.syntaxes.suffixed_pairs import SuffixedPairs, SuffixedPairsAtStart
from proxy.guardrails.rescue.syntaxes.tools_tag import ToolsTag

_MARKED: tuple[Syntax, ...] = (
    Hermes(),
    QwenCoder(),
    ArgumentPairs(),
    Invoke(),
    FunctionTags(),
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
    AttributedTags(),
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


def in_order(names: Iterable[str]) -> tuple[Syntax, ...]:
    """Return every syntax, those named by a profile first; unknown names raise KeyError."""
    return _in_order(tuple(names))


@cache  # profiles name a few orders, and every request asks
def _in_order(names: tuple[str, ...]) -> tuple[Syntax, ...]:
    known = {syntax.name: syntax for syntax in SYNTAXES}
    first = {name: known[name] for name in names}
    return tuple((first | known).values())
