"""An answer in the form that the client asked for: JSON that satisfies the client's own schema."""

from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonSchema, JsonValue
from proxy.facts import Dropped, Fact, Unchecked
from proxy.guardrails.schemas.schema import TooLargeToExplain, UnusableSchema, compiled
from proxy.guardrails.schemas.violations import TOO_LARGE, violations

_FENCE = "```"


@dataclass(frozen=True, slots=True)
class ValidAnswer:
    """JSON that satisfies the schema; `text` is the model's own, without a fence around it."""

    text: str
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """Anything else; `problems` are phrases that a model can act on."""

    problems: tuple[str, ...]


CheckedAnswer: TypeAlias = ValidAnswer | InvalidAnswer


def check_answer(written: str, schema: JsonSchema) -> CheckedAnswer:
    """Judge a whole answer; a schema that cannot be compiled demands nothing but JSON."""
    text, facts = _without_fence(written.strip())
    try:
        value: JsonValue = json.parse(text)
    except ValueError as error:
        return InvalidAnswer((f"it is not valid JSON: {error}",))
    try:
        usable = compiled(schema)
        errors = () if usable.is_valid(value) else tuple(usable.errors(value))
    except UnusableSchema as error:
        return ValidAnswer(text, (*facts, Unchecked("the answer", str(error))))
    except TooLargeToExplain:
        return InvalidAnswer((TOO_LARGE.about("the answer"),))
    if errors:
        return InvalidAnswer(tuple(one.about("the answer") for one in violations(errors)))
    unchecked = (Unchecked("the answer", usable.problem),) if usable.problem else ()
    return ValidAnswer(text if facts else written, (*facts, *unchecked))


def _without_fence(text: str) -> tuple[str, tuple[Fact, ...]]:
    """Take a code fence off that holds the whole answer; the client's parser would trip over it."""
    opening, _, rest = text.partition("\n")
    if opening.lower() not in (_FENCE, f"{_FENCE}json") or not rest.endswith(_FENCE):
        return text, ()
    return rest.removesuffix(_FENCE).strip(), (Dropped("code_fence"),)
