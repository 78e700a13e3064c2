"""Sends the right calls of BFCL or tau2 through Temper, in every syntax that Temper reads.

The client must receive the same tool, and arguments that are equal as JSON. The text
of a call follows the example of its syntax in the table of formats; each reply has one call. Calls
that violate the schema of their tool are skipped, because Temper must not forward them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from proxy.errors import InvalidConfiguration
from proxy.guardrails.rescue.formats import TABLE
from temper_evals.benchmarks.bfcl import UserTurn, load
from temper_evals.benchmarks.tau2_calls import gold_turns
from temper_evals.bfcl import BfclWorld
from temper_evals.reply_bed import (
    NO_CALL,
    RecordedQuestion,
    RecordedReply,
    RecordedSetup,
    ReplyScenario,
)
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Transcript, World
from temper_evals.scenarios.worlds import key_of, objection
from temper_evals.simulated.renderings import as_text

_TASKS = 5  # of each category
_TOOL, _OBJECT, _KEYWORDS = "get_weather", '{"city": "Paris"}', "city='Paris'"
_BRACES = '{city:<|"|>Paris<|"|>}'
# one argument, in the examples of the syntaxes that do not write arguments as JSON
_ARGUMENTS = (
    "<parameter=city>\nParis\n</parameter>\n",
    "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n",
    "<arg_key:x1>city</arg_key:x1>\n<arg_value:x1>Paris</arg_value:x1>\n",
    '<parameter name="city">Paris</parameter>\n',
    '<param name="city">Paris</param>',
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>',
    'argument key="city" type="string"Parisargument',
    "<|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>\n",
    "BEGIN_ARG: city\nParis\nEND_ARG\n",
)
_NO_CALLS = ("quoted", "result")  # shapes of text that is never a call


@dataclass(frozen=True, slots=True)
class WrittenGold(ReplyScenario):
    """A reply that contains a right call as text; the client must receive this call unchanged."""

    call: PlannedCall

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Return whether the first reply has exactly the written call."""
        assert isinstance(end, BfclWorld)  # noqa: S101 - made by `world`
        made = [key_of(call.name, call.arguments) for call in end.calls_of_first_reply(transcript)]
        if made == [key_of(self.call.name, self.call.arguments)]:
            return Judgment(right=True)
        return Judgment(right=False, why="; ".join(made) if made else NO_CALL)


def syntax_templates() -> dict[str, str]:
    """Return the template of a call in each syntax, by the syntax's name; `as_text` fills it."""
    return {row.name: _template(row.example) for row in TABLE.formats if row.shape not in _NO_CALLS}


def _template(example: str) -> str:
    template = example.replace(_TOOL, "{name}")
    for spelling, mark in (
        (_OBJECT, "{arguments}"),
        (_KEYWORDS, "{keywords}"),
        (_BRACES, "{braces}"),
    ):
        if spelling in template:
            return template.replace(spelling, mark)
    argument = next(spelling for spelling in _ARGUMENTS if spelling in template)
    each = (
        argument.replace("city", "{key}")
        .replace('"string"', '"{type}"')
        .replace("Paris", "{value}")
    )
    return template.replace(argument, f"{{each_argument}}{each}{{end_argument}}")


@lru_cache(maxsize=4)
def load_gold(syntax: str = "", most: int | None = None, *, is_tau2: bool = False) -> RecordedSetup:
    """Write the right calls of `most` tasks of each category in every syntax, or only in `syntax`.

    Raises InvalidConfiguration.
    """
    count = _TASKS if most is None else most
    known = syntax_templates()
    if syntax and syntax not in known:
        problem = f"unknown syntax {syntax!r}; known: {', '.join(known)}"
        raise InvalidConfiguration("--benchmark", problem)
    turns = [gold_turns(count)] if is_tau2 else [task.turns for task in load("", count)]
    calls = [pair for several in turns for pair in _calls(several)]
    replies: list[WrittenGold] = []
    for name in [syntax] if syntax else known:
        for number, (turn, call) in enumerate(calls):
            question = RecordedQuestion([*turn.messages], [*turn.tools], [])
            text = as_text(call, known[name])
            reply = RecordedReply(name, str(number), text, own_handler_right=True, dotted=True)
            replies.append(WrittenGold(question, reply, len(replies), call))
    return RecordedSetup("gold", (*replies,))


def _calls(turns: Iterable[UserTurn]) -> Iterator[tuple[UserTurn, PlannedCall]]:
    """Yield each distinct valid call of these turns, with its turn."""
    seen: set[str] = set()
    for turn in turns:
        for call in turn.gold:
            key = key_of(call.name, call.arguments)
            if key not in seen and objection(turn.tools, call.name, call.arguments) is None:
                yield turn, call
            seen.add(key)
