"""Decides what becomes of a call in a model's text: one table.

A call is read (it counts), asked about (the reply is retried), shown as text, or left out. The
decision depends on the facts in a `Standing` and on nothing else: who wrote the call before, its
position, the words next to it, and its format. `guardrails.reading` fills the `Standing` from what
the scanner and `rescue.copies` found. The docs show this table (`docs/guides/quoted-calls.md`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


class Treatment(Enum):
    """What becomes of a call; one that is left out is not shown either."""

    READ = "read"
    ASKED = "asked about"
    TEXT = "text"
    LEFT_OUT = "left out"


class Origin(Enum):
    """Who wrote the call before the model did."""

    MODEL = "nobody"
    USER = "the user"
    RESULT = "a tool, with values that the user never named"
    FORBIDDEN = "somebody who forbids it"


class Around(Enum):
    """The markup in which a call stands."""

    NOTHING = "nothing"
    SENTENCE = "a sentence"
    LAYOUT = "an element or indentation"
    QUOTATION = "code or quotation marks"


class Words(Enum):
    """What is said next to a call."""

    NONE = "nothing"
    OTHER = "other words"
    SHOWING = "that it is only shown"
    ASKING = "a question to the user"


class Format(Enum):
    """Whether the model's profile names the syntax of a call."""

    OWN = "the model's own"
    FOREIGN = "another"


class Content(Enum):
    """What a call consists of; a plain one has no mark that distinguishes it from data or code."""

    MARKED = "marked"
    PLAIN = "plain"
    PLACEHOLDERS = "placeholders"


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts about one call that the decision depends on."""

    origin: Origin = Origin.MODEL
    around: Around = Around.NOTHING
    before: Words = Words.NONE
    behind: Words = Words.NONE
    content: Content = Content.MARKED
    format: Format = Format.FOREIGN


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of the calls that match; an unnamed column matches everything."""

    treatment: Treatment
    origin: Collection[Origin] = tuple(Origin)
    around: Collection[Around] = tuple(Around)
    before: Collection[Words] = tuple(Words)
    behind: Collection[Words] = tuple(Words)
    content: Collection[Content] = tuple(Content)
    format: Collection[Format] = tuple(Format)

    def fits(self, call: Standing) -> bool:
        return (
            call.origin in self.origin
            and call.around in self.around
            and call.before in self.before
            and call.behind in self.behind
            and call.content in self.content
            and call.format in self.format
        )


# The first matching row counts.
TABLE = (
    Row(Treatment.TEXT, around=(Around.QUOTATION,)),
    Row(Treatment.TEXT, before=(Words.SHOWING,)),
    Row(Treatment.TEXT, origin=(Origin.FORBIDDEN, Origin.USER)),
    Row(Treatment.ASKED, origin=(Origin.RESULT,)),
    Row(Treatment.LEFT_OUT, content=(Content.PLACEHOLDERS,)),
    Row(Treatment.ASKED, before=(Words.NONE,), behind=(Words.SHOWING,)),
    Row(Treatment.ASKED, behind=(Words.SHOWING,), format=(Format.OWN,)),
    Row(Treatment.TEXT, behind=(Words.SHOWING,)),
    Row(Treatment.ASKED, around=(Around.LAYOUT,)),
    Row(Treatment.ASKED, before=(Words.ASKING,)),
    Row(Treatment.ASKED, behind=(Words.ASKING,), content=(Content.MARKED,)),
    Row(Treatment.ASKED, around=(Around.SENTENCE,), before=(Words.NONE,)),
    Row(Treatment.ASKED, around=(Around.SENTENCE,), format=(Format.OWN,)),
    Row(Treatment.TEXT, around=(Around.SENTENCE,)),
    Row(Treatment.READ, content=(Content.MARKED,)),
    Row(Treatment.READ, behind=(Words.NONE,)),
    Row(Treatment.TEXT, behind=(Words.ASKING,)),
    Row(Treatment.ASKED),
)


def decide(call: Standing) -> Treatment:
    return next(row.treatment for row in TABLE if row.fits(call))
