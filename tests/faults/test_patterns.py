"""F101: patterns in schemas that are short as text but expensive to check.

Each attack is a schema and arguments for its tool. A separate process checks them, because an
attack may exhaust the memory (C1 aborts under 3 GB) or run very long (H1: 35 s for 600 letters).
"""

import resource
import subprocess
import sys

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.facts import Unchecked
from proxy.guardrails.schemas.arguments import Members, check, check_answer

NESTED = "^((a{1,50}){1,50}){1,40}xK$"
MEMORY = 700 * 2**20  # bytes of address space; an idle process needs 200 MiB


def properties(*patterns: str) -> JsonObject:
    """Return the schema of an object with a member for each pattern."""
    listed = {f"p{number}": {"pattern": pattern} for number, pattern in enumerate(patterns)}
    return {"type": "object", "properties": {name: {**schema} for name, schema in listed.items()}}


def numbered(pattern: str, count: int) -> list[str]:
    return [f"{pattern}{number}" for number in range(count)]


REFERENCES: JsonObject = {
    "type": "object",
    "$defs": {f"d{number}": {"pattern": f"{NESTED}{number}"} for number in range(100)},
    "properties": {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(100)},
}
LETTERS: JsonObject = {"p0": "a" * 600}
ATTACKS: dict[str, tuple[JsonObject, JsonObject]] = {
    "400 nested repeats": (properties(*numbered(NESTED, 400)), LETTERS),
    "100 nested repeats": (properties(*numbered(NESTED, 100)), LETTERS),
    "another nesting": (properties(*numbered("((((a{1,9}){1,9}){1,9}){1,9}){1,9}", 99)), LETTERS),
    "one repeat of repeats": (properties("^(a{1,1000}){1,100}$"), LETTERS),
    "alternations": (properties(*numbered("(a|b|ab){1,2000}", 400)), LETTERS),
    "Unicode classes": (properties(*numbered(r"\p{L}{1,500}", 400)), LETTERS),
    "classes that are negated": (properties(*numbered("[^b]{1,1000}", 400)), LETTERS),
    "classes in any case": (properties(*numbered(r"(?i)\p{L}{1,20}", 400)), LETTERS),
    "a long row of classes": (properties(r"\p{L}" * 100_000), LETTERS),
    "a long row of classes that are translated": (properties(r"\d" * 1_500), LETTERS),
    "many small ones": (properties(*numbered("[a-z]{1,9}", 10_000)), LETTERS),
    "one large one": (properties("(" + "|".join(numbered("[a-z]x", 60_000)) + ")"), LETTERS),
    "groups": (properties(*numbered("(a)" * 1_300, 100)), LETTERS),
    "lookaheads": (properties(*numbered("(?=a{1,1000})" * 300, 100)), LETTERS),
    "a large lookahead": (properties("(?:(?!(?:a{1,100}){1,100}z).)*z$"), LETTERS),
    "lookaheads in repeats": (properties("(?:(?:(?:(?=a)|){1000}){1000}){1000}"), LETTERS),
    "names": ({"patternProperties": {NESTED: {}}, "additionalProperties": False}, LETTERS),
    "names that are schemas": ({"propertyNames": {"pattern": NESTED}}, LETTERS),
    "references": (REFERENCES, LETTERS),
    "branches": ({"anyOf": [properties(schema) for schema in numbered(NESTED, 200)]}, LETTERS),
    "a negation": ({"not": properties(NESTED)}, LETTERS),
    "a long value": (properties("(a{1,100}){1,50}"), {"p0": "a" * 1_000_000}),
    "a long value and a lookahead": (properties("^(?=a)(a{1,9}){1,9}$"), {"p0": "a" * 100_000}),
    "long values": (
        {"properties": {"p0": {"items": {"pattern": "(a{1,100}){1,50}$"}}}},
        {"p0": ["a" * 1_000] * 1_000},
    ),
    "long names": (
        {"patternProperties": {"(a{1,100}){1,50}$": True}},
        {"a" * 1_000_000: 1},
    ),
}


def unchecked(name: str) -> list[str]:
    """Check the arguments of an attack; return the parts of its schema that were not checked."""
    schema, value = ATTACKS[name]
    text: JsonValue = json.dump_text(value)
    checks = [check(Tool("t", schema, b"{}"), text), check_answer(str(text), schema)]
    Members(schema).check("p0", value.get("p0"))
    facts = [fact for checked in checks for fact in getattr(checked, "facts", ())]
    return [fact.problem for fact in facts if isinstance(fact, Unchecked)]


def main() -> None:
    """Write the unchecked parts of each attack, within a memory limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    results: JsonObject = {name: [*unchecked(name)] for name in ATTACKS}
    sys.stdout.buffer.write(json.dump(results))


@pytest.fixture(scope="module")
def problems() -> JsonObject:
    command = [sys.executable, "-c", "from tests.faults.test_patterns import main; main()"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()[-500:]
    results = json.parse(ended.stdout)
    assert isinstance(results, dict)
    return results


@pytest.mark.fault("F101")
@pytest.mark.parametrize("name", ATTACKS)
def test_a_pattern_that_is_expensive_to_check_is_skipped_and_reported(
    name: str, problems: JsonObject
) -> None:
    messages = problems[name]
    assert isinstance(messages, list)
    assert len(messages) == 2  # one as a problem of a call, and one of an answer
    assert all("pattern" in str(message) for message in messages)
