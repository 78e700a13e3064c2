"""Every syntax, in the order in which they are tried if nothing is known.

Three are no calls: they prevent reading a call in what is addressed to the user or repeated from a
result.
"""

from functools import cache

from proxy.guardrails.formats.gemma import BARE_GEMMA, BARE_GEMMA_IN_TEXT, GEMMA
from proxy.guardrails.formats.hermes import HERMES
from proxy.guardrails.formats.mistral import MISTRAL
from proxy.guardrails.formats.react import REACT
from proxy.guardrails.rescue.marks import RESULTS, result_end
from proxy.guardrails.rescue.syntax import NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes import named_json, xml_tags
from proxy.guardrails.rescue.syntaxes.argument_pairs import (
    ARGUMENT_PAIRS,
    SUFFIXED_PAIRS,
    SUFFIXED_PAIRS_AT_START,
)
from proxy.guardrails.rescue.syntaxes.marked_json import APERTUS, FAMILIES, TOOLS_TAG
from proxy.guardrails.rescue.syntaxes.plain_json import BARE_JSON, UNOPENED_JSON, fenced_json
from proxy.guardrails.rescue.syntaxes.pythonic import (
    LINE_BLOCKS,
    MARKED_PYTHON,
    PYTHON_LIST,
    PYTHON_REPLY,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Literals

_ENDS = Literals(("<|eot|>", "<|eom|>", "<|end|>", "<|start|>", "<|return|>"))
_RECIPIENT = "to=user<|message|>"


def _read_addressed(cursor: Cursor, opening: str) -> Reading:
    """Read what is addressed to the user: it is shown, never run."""
    yield from cursor.take_until(_ENDS)
    raise NoCall(Reason.QUOTED)


def _read_result(cursor: Cursor, opening: str) -> Reading:
    """Read a tool's result that the model repeats; it is dropped after a call."""
    if (end := result_end(opening)) is not None:
        yield from cursor.take_until(end)
        yield from cursor.one_of(end)
    raise NoCall(Reason.QUOTED)


_MARKED: tuple[Syntax, ...] = (
    HERMES,
    xml_tags.QWEN_CODER,
    ARGUMENT_PAIRS,
    xml_tags.INVOKE,
    xml_tags.FUNCTION_TAGS,
    GEMMA,
    MISTRAL,
    xml_tags.KIMI_K3,
    xml_tags.KIMI_K3_WORDS,
    xml_tags.SOLAR_ARGUMENTS,
    *named_json.MARKED,
    *FAMILIES,
    MARKED_PYTHON,
    APERTUS,
    xml_tags.NAMED_TAGS,
    xml_tags.ATTRIBUTED_TAGS,
    SUFFIXED_PAIRS,
    TOOLS_TAG,
)
SYNTAXES: tuple[Syntax, ...] = (
    *_MARKED,
    Syntax("addressed", (f" {_RECIPIENT}", f"<|start|>assistant {_RECIPIENT}"), _read_addressed),
    # For a reply that begins inside the header.
    Syntax("addressed_at_start", (_RECIPIENT,), _read_addressed, "reply_start"),
    Syntax("repeated_result", tuple(RESULTS), _read_result, is_marked=False),
    named_json.KIMI_START,
    SUFFIXED_PAIRS_AT_START,
    fenced_json(_MARKED),
    BARE_JSON,
    UNOPENED_JSON,
    PYTHON_REPLY,
    PYTHON_LIST,
    BARE_GEMMA,
    BARE_GEMMA_IN_TEXT,
    named_json.FUNCTIONARY,
    named_json.FUNCTIONARY_IN_TEXT,
    REACT,
    LINE_BLOCKS,
)


@cache  # profiles name a few orders, and every request asks
def order_syntaxes(names: tuple[str, ...]) -> tuple[Syntax, ...]:
    """Return every syntax, those named by a profile first; unknown names raise KeyError."""
    known = {syntax.name: syntax for syntax in SYNTAXES}
    first = {name: known[name] for name in names}
    return tuple((first | known).values())
