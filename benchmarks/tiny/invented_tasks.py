"""What is asked of the larger model: wishes for invented tools, the calls due, and the answer.

The same families make its training and measure it, with tools of its own domains and of domains
that are held out.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.tiny.invented import Field, InventedTool, Invention
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.tiny_model.tasks import NOTHING_FITS, SMALL_TALK

TRANSIENT = (
    "busy, try again",
    "temporarily unavailable",
    "too many requests, try again",
    "the line was lost, please retry",
)
FINAL = (
    "permission denied",
    "this is not allowed",
    "the account is locked",
    "it does not exist",
    "it is closed for good",
)
UNCLEAR = ("internal error", "the request failed", "service error 500", "something went wrong")
_ASKS = ("Which {} is it?", "Please tell me the {}.", "What is the {}?")
_OPENINGS = ("", "", "", "please ", "I need you to ", "now ", "kindly ")
POLITE = ("could you ", "can you ", "would you ")
_PLAIN_RESULT, _EXTRA = 0.3, 0.25


@dataclass(frozen=True, slots=True)
class InventedCall:
    """A call that is due: first it fails with these errors, then it returns the result, if any."""

    tool: InventedTool
    arguments: JsonObject
    result: str = ""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InventedTask:
    """A wish, the tools on offer, the calls due one after the other, and what ends it.

    `fact` is what every right answer has in it.
    """

    family: str
    tools: tuple[InventedTool, ...]
    user: str
    calls: tuple[InventedCall, ...]
    answer: str
    fact: str


@dataclass(frozen=True, slots=True)
class _Wish:
    """One call that somebody wants, and how they say it, without a beginning or an end."""

    call: InventedCall
    text: str
    value: str

    @property
    def answer(self) -> str:
        told = self.call.tool.returns.label
        return f"{'Done, the' if self.call.tool.changes else 'The'} {told} is {self.value}."


@dataclass(frozen=True, slots=True)
class InventedDraw:
    """Draws tasks."""

    draw: random.Random
    held_out: bool = False

    def task(self, family: str) -> InventedTask:
        return FAMILIES[family](self)

    @property
    def invention(self) -> Invention:
        """Where tools come from."""
        return Invention(self.draw, self.held_out)

    def wish(self, tool: InventedTool, known: JsonObject | None = None) -> _Wish:
        """Draw a wish for a tool; `known` arguments are not said."""
        given = dict(known or {})
        spoken: list[tuple[Field, JsonValue]] = []
        for one in tool.fields:
            if one.name in given or not (one.is_required or self.draw.random() < 0.5):
                continue
            given[one.name] = self.invention.value(one)
            spoken.append((one, given[one.name]))
        value = spell(self.invention.value(tool.returns))
        call = InventedCall(tool, in_order(tool, given), self._result(tool.returns, value))
        return _Wish(call, self._sentence(tool, spoken), value)

    def amid(self, needed: Sequence[InventedTool], count: int) -> tuple[InventedTool, ...]:
        """Return tools amid others, most of them of one domain, in a drawn order."""
        mixed, domain = {one.name: one for one in needed}, self.invention.domain()
        while len(mixed) < count:
            one = (domain if self.draw.random() < 0.7 else self.invention.domain()).tool()
            mixed.setdefault(one.name, one)
        tools = [*mixed.values()]
        self.draw.shuffle(tools)
        return tuple(tools)

    def single(
        self, family: str, counts: tuple[int, int], openings: Sequence[str] = _OPENINGS
    ) -> InventedTask:
        """Draw a task of one call, with so many tools on offer."""
        wish = self.wish(self.invention.domain().tool())
        tools = self.amid((wish.call.tool,), self.draw.randint(*counts))
        return self.of_wishes(family, tools, (wish,), self.draw.choice([*openings]))

    def of_wishes(
        self, family: str, tools: tuple[InventedTool, ...], wishes: Sequence[_Wish], opening: str
    ) -> InventedTask:
        """Put wishes together; the last one's answer ends it."""
        said = self.draw.choice((" and ", ", then ", ". Then ", " and also ")).join(
            one.text for one in wishes
        )
        calls = tuple(one.call for one in wishes)
        user = sentence(opening + said, self.draw)
        return InventedTask(family, tools, user, calls, wishes[-1].answer, wishes[-1].value)

    def _result(self, told: Field, value: str) -> str:
        """Write what a tool returns: an object mostly, or the value alone."""
        if self.draw.random() < _PLAIN_RESULT:
            return value
        members: JsonObject = {told.name: value}
        if self.draw.random() < _EXTRA:
            members = {"status": "ok", **members}
        return json.dump_text(members)

    def _sentence(self, tool: InventedTool, spoken: Sequence[tuple[Field, JsonValue]]) -> str:
        said = self.draw.choice([*tool.says])
        rest = [*spoken]
        if rest and rest[0][0] is tool.fields[0] and tool.has_key:
            said += f" {spell(rest.pop(0)[1])}"
        if not rest:
            return said
        clauses = [clause(one, value, self.draw) for one, value in rest]
        match self.draw.randrange(4):
            case 0:
                return f"{said}: {', '.join(clauses)}"
            case 1:
                return f"{said} ({'; '.join(clauses)})"
            case _:
                return f"{said} with {listed(clauses)}"


def in_order(tool: InventedTool, arguments: JsonObject) -> JsonObject:
    """Return arguments in the order of the parameters."""
    return {one.name: arguments[one.name] for one in tool.fields if one.name in arguments}


def sentence(text: str, draw: random.Random) -> str:
    """Begin with a capital, and end."""
    end = "?" if text.startswith(("what", *POLITE)) else draw.choice((".", ".", ".", "", "!"))
    return text[0].upper() + text[1:] + end


def spell(value: JsonValue) -> str:
    """Say a value as people do."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return listed([spell(one) for one in value])
        case _:
            return str(value)


def clause(one: Field, value: JsonValue, draw: random.Random) -> str:
    """Say which value a parameter has."""
    if isinstance(value, dict):
        inner = [clause(each, value[each.name], draw) for each in one.fields]
        return f"{one.label} {listed(inner)}" if draw.random() < 0.5 else listed(inner)
    link = draw.choice((" ", " ", " ", ": ", " = ")) if draw.random() < 0.4 else " "
    return f"{one.label}{link}{spell(value)}"


def listed(parts: Sequence[str]) -> str:
    """Join parts as people do."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _single(tasks: InventedDraw) -> InventedTask:
    return tasks.single("single", (1, 3))


def _choose(tasks: InventedDraw) -> InventedTask:
    return tasks.single("choose", (4, 8))


def _polite(tasks: InventedDraw) -> InventedTask:
    """Draw a wish that begins as those that people in training data answer with a promise."""
    return tasks.single("polite", (1, 4), POLITE)


def _failing(tasks: InventedDraw) -> InventedTask:
    """Let the call fail once or twice before it works; the errors say that it may."""
    times = tasks.draw.choice((1, 1, 2))
    return _tried(tasks, "failing", [tasks.draw.choice(TRANSIENT) for _ in range(times)])


def _unclear(tasks: InventedDraw) -> InventedTask:
    """Let the call fail once with an error that may mean anything."""
    return _tried(tasks, "unclear", [tasks.draw.choice(UNCLEAR)])


def _tried(tasks: InventedDraw, family: str, errors: Sequence[str]) -> InventedTask:
    found = tasks.single(family, (1, 4))
    tried = replace(found.calls[0], errors=tuple(errors))
    return replace(found, calls=(tried,))


def _refused(tasks: InventedDraw) -> InventedTask:
    """Let the call fail for good; the answer says so."""
    found = tasks.single("refused", (1, 4))
    problem = tasks.draw.choice(FINAL)
    call = replace(found.calls[0], result="", errors=(problem,))
    return replace(found, calls=(call,), answer=cannot(problem), fact="cannot")


def cannot(problem: str) -> str:
    """Say plainly that it cannot be done."""
    return f"I cannot do that: {problem}."


def _two(tasks: InventedDraw) -> InventedTask:
    """Draw two wishes that have nothing to do with each other."""
    domain = tasks.invention.domain()
    wishes = [tasks.wish(domain.writer()), tasks.wish(domain.tool())]
    if wishes[0].call.tool.name == wishes[1].call.tool.name:
        return _two(tasks)
    tools = tasks.amid([one.call.tool for one in wishes], tasks.draw.randint(2, 6))
    return tasks.of_wishes("two", tools, wishes, tasks.draw.choice(_OPENINGS))


def _chain(tasks: InventedDraw) -> InventedTask:
    """Let the second tool take what the first one finds."""
    domain = tasks.invention.domain()
    thing = domain.thing()
    key = domain.key(thing)
    finder, writer = domain.finder(thing, key), domain.writer(thing, key)
    first = tasks.wish(finder)
    second = tasks.wish(writer, {key.name: first.value})
    pronoun = second.text.replace(f" {thing}", tasks.draw.choice((" it", f" that {thing}")), 1)
    wishes = (first, _Wish(second.call, pronoun, second.value))
    tools = tasks.amid((finder, writer), tasks.draw.randint(2, 6))
    return tasks.of_wishes("chain", tools, wishes, tasks.draw.choice(_OPENINGS))


def _none(tasks: InventedDraw) -> InventedTask:
    """Draw small talk, or a wish that no tool on offer can fulfil."""
    if tasks.draw.random() < 0.4:
        user, answer = tasks.draw.choice(SMALL_TALK)
        tools = tasks.amid((), tasks.draw.randint(1, 5))
        return InventedTask("none", tools, user, (), answer, answer)
    found = tasks.single("none", (2, 6))
    due = found.calls[0].tool
    tools = tuple(one for one in found.tools if one.name != due.name and one.thing != due.thing)
    if not tools:
        return _none(tasks)
    return InventedTask("none", tools, found.user, (), NOTHING_FITS, "None of my tools")


def _ask(tasks: InventedDraw) -> InventedTask:
    """Leave out which thing is meant; the right answer asks for it."""
    while not (tool := tasks.invention.domain().tool()).has_key:
        pass
    key = tool.fields[0]
    known = tasks.wish(tool, {key.name: ""})
    tools = tasks.amid((tool,), tasks.draw.randint(1, 4))
    user = sentence(
        tasks.draw.choice(_OPENINGS) + known.text.replace("what is", "tell me"), tasks.draw
    )
    answer = tasks.draw.choice(_ASKS).format(key.label)
    return InventedTask("ask", tools, user, (), answer, key.label)


FAMILIES: dict[str, Callable[[InventedDraw], InventedTask]] = {
    "single": _single,
    "choose": _choose,
    "polite": _polite,
    "two": _two,
    "chain": _chain,
    "failing": _failing,
    "unclear": _unclear,
    "refused": _refused,
    "ask": _ask,
    "none": _none,
}
