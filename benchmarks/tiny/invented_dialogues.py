"""Conversations that the larger model learns from: invented tasks, and what happens around them.

Mistakes, tool errors, promises without a call, ends that come too early, and questions behind an
end are all in them; what is wrong is shown, and not learnt. Whoever asks politely often gets a
promise only, as models do: that is learnt. No sentence of Temper's is in them.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.tiny.dialogues import END, Segment, call_text, error_text, result_of, says
from benchmarks.tiny.invented import InventedTool, Invention
from benchmarks.tiny.invented_tasks import InventedCall, InventedDraw, InventedTask, cannot

SHARES = {
    **{"single": 16, "choose": 16, "polite": 6, "two": 14, "chain": 14},
    **{"failing": 8, "unclear": 6, "refused": 7, "ask": 6, "none": 9},
}
_PROMISES = ("I will {} now.", "Let me {}.", "I am going to {}.", "Sure, I will {}.")
_URGES = ("Go on.", "Please do.", "Yes, do it.", "Then do it.", "Well?", "I am waiting.", "Do so.")
_MISSED = (
    "You have not done all of it.",
    "Something is missing.",
    "And the rest?",
    "That is not all that I wanted.",
)
_THANKS = ("Thanks!", "Thank you.", "Great.", "Very good, thanks.")
_CHECKS = (
    "Is anything left to do? If so, do it. If not, say {}.",
    "If a step is missing, go on with it. Else write {}.",
    "Anything still open? Then use a tool. Otherwise reply with {} alone.",
    "Look again: if there is work left, do it, or say {} if there is none.",
)
_FINISHED = (
    ("Are you finished?", "Yes, I am finished."),
    ("Did you do all of it?", "Yes, all of it."),
    ("Is that all?", "Yes, that is all."),
)
_WORDS = ("FINISHED", "NOTHING", "COMPLETE", "OK", "END", "READY", "NO", "NONE", "OVER")
_ROLES = ("You help people in the {}.", "You are an assistant. Be short.", "Use tools if they fit.")
_RULES = ("Answer in one sentence.", "Never guess a value.", "Today is a Monday.")


def conversation_prompt(tools: Sequence[InventedTool], user: str, system: str = "") -> str:
    """Write all that stands before the first reply, but for the mark that begins it."""
    listed = "".join(one.signature() for one in tools)
    rules = f"<|im_start|>system\n{system}{END}\n" if system else ""
    return f"<|im_start|>system\n{listed}{END}\n{rules}{user_turn(user)}"


def user_turn(text: str) -> str:
    """Write what a user says."""
    return f"<|im_start|>user\n{text}{END}\n"


def draw_conversation(draw: random.Random, *, held_out: bool = False) -> Iterator[Segment]:
    """Draw a conversation for training, or a held-out one to measure with."""
    tasks = InventedDraw(draw, held_out)
    task = tasks.task(draw.choices([*SHARES], [*SHARES.values()])[0])
    system = ""
    if draw.random() < 0.15:
        parts = draw.choice(_ROLES).format(tasks.invention.domain().name), draw.choice(_RULES)
        system = " ".join(parts[: draw.randint(1, 2)])
    yield Segment(conversation_prompt(task.tools, task.user, system))
    yield from Course(draw, tasks).play(task)


@dataclass(frozen=True, slots=True)
class Course:
    """How a task goes, and what is said behind it."""

    draw: random.Random
    tasks: InventedDraw

    def play(self, task: InventedTask) -> Iterator[Segment]:
        """Write the replies, the results, and what follows."""
        yield from self._reach_first_call(task)
        if task.family == "unclear":
            yield from self._try_unclearly(task.calls[0], task.answer)
            return
        ends_early = len(task.calls) > 1 and self._is(0.15)
        for place, call in enumerate(task.calls):
            if ends_early and place == len(task.calls) - 1:
                yield from self._end_early(task.calls[0])
            yield from self._call(call)
        yield from says(task.answer)
        yield from self._follow(task)

    def _is(self, share: float) -> bool:
        return self.draw.random() < share

    def _reach_first_call(self, task: InventedTask) -> Iterator[Segment]:
        """Promise instead of calling, or pretend that it is done, and be urged on."""
        if not task.calls:
            return
        if self._is(0.7 if task.family == "polite" else 0.02):
            yield from says(self._promise(task.calls[0]))
            yield Segment(user_turn(self.draw.choice(_URGES)))
        elif self._is(0.04):
            yield from says("Done.", 0.0)
            yield Segment(user_turn(self.draw.choice((*_MISSED, self._check("NO")))))

    def _promise(self, call: InventedCall) -> str:
        return self.draw.choice(_PROMISES).format(self.draw.choice(call.tool.says[-1:]))

    def _end_early(self, first: InventedCall) -> Iterator[Segment]:
        """End before all is done, which is not learnt, and be asked for the rest."""
        yield from says(self.draw.choice((f"The result is {first.result}.", "Done.")), 0.0)
        asked = self.draw.choice((*_MISSED, *_URGES, self._check(self._word())))
        yield Segment(user_turn(asked))

    def _call(self, call: InventedCall) -> Iterator[Segment]:
        if self._is(0.06):
            yield from self._mistake(call)
        written = call_text(call.tool.name, call.arguments)
        results = [error_text(one) for one in call.errors] + [call.result] * bool(call.result)
        for result in results:
            said = f"{self._promise(call)}\n{written}" if self._is(0.04) else written
            yield from says(said)
            yield result_of(result)

    def _mistake(self, call: InventedCall) -> Iterator[Segment]:
        """Make a wrong call that is not learnt; its error says what was wrong."""
        name, arguments, problem = call.tool.name, dict(call.arguments), ""
        wrong = self.draw.choice([*arguments])
        field = next(one for one in call.tool.fields if one.name == wrong)
        match self.draw.randrange(4):
            case 0:
                name = Invention(self.draw).values.word()
                problem = f"there is no tool '{name}'"
            case 1 if field.choices:
                arguments[wrong] = self.tasks.invention.values.word()
                problem = f"invalid arguments at /{wrong}: it is not one of {field.choices}"
            case 2:
                value = arguments[wrong]
                arguments[wrong] = str(value) if isinstance(value, int | float) else 0
                problem = f"invalid arguments at /{wrong}: it has the wrong type"
            case _:
                del arguments[wrong]
                problem = self.draw.choice((f"{wrong} is missing", f'"{wrong}" is required'))
        yield from says(call_text(name, arguments), 0.0)
        yield result_of(error_text(problem))

    def _check(self, word: str) -> str:
        return self.draw.choice(_CHECKS).format(word)

    def _word(self) -> str:
        made_up = self.tasks.invention.values.word().upper()
        return made_up if self._is(0.4) else self.draw.choice(_WORDS)

    def _follow(self, task: InventedTask) -> Iterator[Segment]:
        """Say something behind the end: a question, thanks, or the next wish."""
        fate = self.draw.random()
        if fate < 0.12 and task.calls:
            yield from self._ask_whether_done()
        elif fate < 0.17:
            yield from self._exchange(self.draw.choice(_THANKS), "You are welcome.")
        elif fate < 0.22 and task.family not in {"none", "ask", "refused"}:
            yield from self._exchange("What was the result again?", f"It is {task.fact}.")
        elif fate < 0.4 and task.tools:
            yield from self._wish_again(task)

    def _exchange(self, user: str, reply: str) -> Iterator[Segment]:
        yield Segment(user_turn(user))
        yield from says(reply)

    def _ask_whether_done(self) -> Iterator[Segment]:
        if self._is(0.3):
            yield from self._exchange(*self.draw.choice(_FINISHED))
        else:
            word = self._word()
            yield from self._exchange(self._check(word), word)

    def _wish_again(self, task: InventedTask) -> Iterator[Segment]:
        wish = self.tasks.wish(self.draw.choice(task.tools))
        yield Segment(user_turn(f"{wish.text[0].upper()}{wish.text[1:]}."))
        yield from self._call(wish.call)
        yield from says(wish.answer)

    def _try_unclearly(self, call: InventedCall, answer: str) -> Iterator[Segment]:
        """Meet an error that may mean anything: try again, or give up and be asked once more."""
        written = call_text(call.tool.name, call.arguments)
        yield from says(written)
        yield result_of(error_text(call.errors[0]))
        if self._is(0.5):
            yield from says(cannot(call.errors[0]))
            if self._is(0.4):
                return
            asked = "Try again.", "Please try once more.", self._check(self._word())
            yield Segment(user_turn(self.draw.choice(asked)))
        yield from says(written)
        yield result_of(call.result)
        yield from says(answer)
