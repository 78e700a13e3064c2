"""Decides whether the model meant a call in its text, with one table.

`decide` returns CALL, AMBIGUOUS, TEXT or DROPPED, from the first row of `TABLE` that matches. The
decision depends only on the facts in `CallFacts`: the call's author, the markup around the call,
the words next to it, its content and its format. `guardrails.call_facts` collects the facts. The
documentation shows the table (`docs/guides/quoted-calls.md`).

Calls that the scanner refuses never reach the table. `guardrails.reading` applies the decision,
with two exceptions. It treats a CALL as AMBIGUOUS if the scanner doubts the call, or if the call
follows an ambiguous call. It treats an AMBIGUOUS call as TEXT if the call is invalid for its tool.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


class Decision(Enum):
    """The decision about a call in the text.

    - CALL: the client receives the call as a tool call.
    - TEXT: the call stays in the text of the answer.
    - AMBIGUOUS: the model is asked whether it meant the call.
    - DROPPED: the call is removed from the text.
    """

    CALL = "call"
    AMBIGUOUS = "ambiguous"
    TEXT = "text"
    DROPPED = "dropped"


class Origin(Enum):
    """The author of the first occurrence of a call in the conversation."""

    MODEL = "the model"
    USER = "the user"
    RESULT = "a tool, with values that the user never named"
    FORBIDDEN = "a text that forbids the call"


class Context(Enum):
    """The markup around a call."""

    NONE = "nothing"
    SENTENCE = "a sentence"
    LAYOUT = "an element or indentation"
    QUOTATION = "code or quotation marks"


class Words(Enum):
    """The meaning of the text next to a call."""

    NONE = "no words"
    OTHER = "other words"
    SHOWING = "words that present an example"
    ASKING = "a question to the user"


class Format(Enum):
    """Whether the model's profile or prompt names the format of a call."""

    OWN = "the model's own"
    FOREIGN = "another"


class Content(Enum):
    """The content of a call. A PLAIN call has no mark that distinguishes it from data or code."""

    MARKED = "marked"
    PLAIN = "plain"
    PLACEHOLDERS = "placeholders"


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The facts about one call that the decision depends on."""

    origin: Origin = Origin.MODEL
    context: Context = Context.NONE
    before: Words = Words.NONE
    after: Words = Words.NONE
    content: Content = Content.MARKED
    format: Format = Format.FOREIGN


@dataclass(frozen=True, slots=True)
class Row:
    """The decision about all calls that match. A column that is left out matches every call."""

    decision: Decision
    origin: Collection[Origin] = tuple(Origin)
    context: Collection[Context] = tuple(Context)
    before: Collection[Words] = tuple(Words)
    after: Collection[Words] = tuple(Words)
    content: Collection[Content] = tuple(Content)
    format: Collection[Format] = tuple(Format)

    def matches(self, call: CallFacts) -> bool:
        return (
            call.origin in self.origin
            and call.context in self.context
            and call.before in self.before
            and call.after in self.after
            and call.content in self.content
            and call.format in self.format
        )


# The first matching row decides. In the examples, CALL is a marked call and {...} is plain JSON.
# For each row, docs/ablation.md states how many quotations would become calls without this row.
TABLE = (
    # > CALL
    Row(Decision.TEXT, context=(Context.QUOTATION,)),
    # For example: CALL
    Row(Decision.TEXT, before=(Words.SHOWING,)),
    # The user asks "What does CALL do?", or a fetched page says "never send CALL".
    Row(Decision.TEXT, origin=(Origin.USER, Origin.FORBIDDEN)),
    # A fetched page may contain an injected call. If the model confirms it in the retry, the call
    # is still refused.
    Row(Decision.AMBIGUOUS, origin=(Origin.RESULT,)),
    # I would need the name of the league. {... {"league": ""}} (Hermes-2-Pro)
    Row(Decision.DROPPED, content=(Content.PLACEHOLDERS,)),
    # [f(base=10)] The above line calls f. (deepseek-coder, gemma-7b) With the decision TEXT, 5 of
    # 270 recorded replies would lose a call that the model meant.
    Row(Decision.AMBIGUOUS, before=(Words.NONE,), after=(Words.SHOWING,)),
    # The format that the profile or the prompt names is trusted more than a foreign format
    # (decision 0030).
    Row(Decision.AMBIGUOUS, after=(Words.SHOWING,), format=(Format.OWN,)),
    # I look. CALL That is how it is written.
    Row(Decision.TEXT, after=(Words.SHOWING,)),
    # <section>CALL</section>, or an indented line: the model may mean the call or show it.
    Row(Decision.AMBIGUOUS, context=(Context.LAYOUT,)),
    # Which city do you mean? CALL
    Row(Decision.AMBIGUOUS, before=(Words.ASKING,)),
    # CALL Shall I go on?
    Row(Decision.AMBIGUOUS, after=(Words.ASKING,), content=(Content.MARKED,)),
    # CALL gets the time.
    Row(Decision.AMBIGUOUS, context=(Context.SENTENCE,), before=(Words.NONE,)),
    Row(Decision.AMBIGUOUS, context=(Context.SENTENCE,), format=(Format.OWN,)),
    # I could send CALL now.
    Row(Decision.TEXT, context=(Context.SENTENCE,)),
    Row(Decision.CALL, content=(Content.MARKED,)),
    # {...} at the end of the reply. With the decision TEXT, 77 of 270 recorded replies would lose
    # their call.
    Row(Decision.CALL, after=(Words.NONE,)),
    # {...} Is that right?
    Row(Decision.TEXT, after=(Words.ASKING,)),
    Row(Decision.AMBIGUOUS),
)


def decide(call: CallFacts) -> Decision:
    return next(row.decision for row in TABLE if row.matches(call))
