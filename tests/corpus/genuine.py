"""Replies in which the model calls a tool, in every syntax, with surrounding defects."""

from collections.abc import Callable, Iterator, Sequence

from proxy.conversation.json import JsonObject
from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import NOW, OSLO, PARIS, Case, ask
from tests.corpus.spellings import SPELLINGS, Call, Spelling

NOTES: dict[str, JsonObject] = {
    "code": {"text": 'def least(items):\n    return items[0] if len(items) < 2 else "many"\n'},
    "markup": {"text": '<ul class="days">\n<li>Monday &amp; Tuesday</li>\n</ul>'},
    "quotation marks": {"text": "She said \"it's\" and 'so on', then \\ and `code`."},
    "several lines": {"text": "first line\n\n\tthird line, indented\nlast line"},
    "many alphabets": {"text": "Zażółć gęślą jaźń, 東京は晴れ, naïve café, 🌦️ and שלום"},
    "brackets": {"text": "a [list] of {braces}, (parentheses) and => arrows: {{x}}"},
    "JSON": {"text": '{"name": "get_time", "arguments": {"city": ["Paris"]}}'},
    "a fence": {"text": "Run this:\n```sh\nls -l | wc\n```\nand look."},
    "a number as text": {"text": "42"},
    "other types": {"text": "x", "tags": ["a", "b, c"], "is_pinned": True},
    "an object": {"text": "here", "place": {"city": "Łódź"}},
    "a list without items": {"text": "none", "tags": []},
}
TOKENS_BEFORE = ("<s>", "<|im_start|>", "<|im_end|>\n", "<bos>")
TOKENS_AFTER = ("<|im_end|>", "</s>", "<|eot_id|>", "<|endoftext|>\n", "<end_of_turn>\n<eos>")
RESPOND: Call = ("respond", {"message": "I am looking it up."})


def write_anywhere(spelling: Spelling, *calls: Call) -> str:
    """Write calls in an allowed position: at the beginning of the reply or after a sentence."""
    lead = "" if spelling.begins_reply else "One moment."
    return lead + spelling.several(calls)


def expect(title: str, spelling: Spelling, reply: str, *calls: Call) -> Case:
    """Return a case in which exactly these calls are intended."""
    return Case(f"{spelling.syntax} {title}", reply, ask(), calls)


def alone(spelling: Spelling) -> Iterator[Case]:
    """Write one call with arguments of several kinds, or with none."""
    yield expect("alone", spelling, write_anywhere(spelling, PARIS), PARIS)
    yield expect("with a number", spelling, write_anywhere(spelling, OSLO), OSLO)
    yield expect("without arguments", spelling, write_anywhere(spelling, NOW), NOW)


def after_prose(spelling: Spelling) -> Iterator[Case]:
    """Write prose before a call."""
    if spelling.follows_prose:
        call = spelling.one(PARIS)
        for prose in ("Let me look that up.\n\n", "I'll check the `city` first:\n", "Sure!\n"):
            yield expect(f"behind {prose!r}", spelling, prose + call, PARIS)
        if spelling.is_marked:
            yield expect("behind a word", spelling, f"I will look it up. {call}", PARIS)


def in_a_row(spelling: Spelling) -> Iterator[Case]:
    """Write two or three calls."""
    yield expect("twice", spelling, write_anywhere(spelling, PARIS, OSLO), PARIS, OSLO)
    three = (OSLO, NOW, PARIS)
    yield expect("three times", spelling, write_anywhere(spelling, *three), *three)


def in_space(spelling: Spelling) -> Iterator[Case]:
    """Write white space around a call."""
    for before, after in (("\n\n", "\n"), ("  ", "  \n\n"), ("\n", "\t\n ")):
        reply = before + write_anywhere(spelling, PARIS) + after
        yield expect(f"between {before!r} and {after!r}", spelling, reply, PARIS)


def without_closer(spelling: Spelling) -> Iterator[Case]:
    """Omit the closing mark at the end of the reply."""
    if spelling.closer:
        for call in (PARIS, OSLO):
            reply = write_anywhere(spelling, call)
            assert reply.endswith(spelling.closer)
            cut = reply.removesuffix(spelling.closer)
            yield expect("without its closing mark", spelling, cut, call)
            yield expect("without it, and a line end", spelling, cut.rstrip() + "\n", call)


def with_text(spelling: Spelling) -> Iterator[Case]:
    """Write arguments that contain the markup of other syntaxes."""
    for title, arguments in NOTES.items():
        call = ("write_note", arguments)
        yield expect(f"with {title}", spelling, write_anywhere(spelling, call), call)


def between_tokens(spelling: Spelling) -> Iterator[Case]:
    """Write control tokens around a call."""
    call = write_anywhere(spelling, PARIS)
    for token in TOKENS_AFTER:
        yield expect(f"before {token!r}", spelling, call + token, PARIS)
    if spelling.begins_reply:
        for token in TOKENS_BEFORE:
            yield expect(f"behind {token!r}", spelling, token + call, PARIS)


def in_thoughts(spelling: Spelling) -> Iterator[Case]:
    """Call a tool within a reasoning block at the end of the reply, or after such a block."""
    call = write_anywhere(spelling, PARIS)
    yield expect("behind thoughts", spelling, f"<think>\nLet me see.\n</think>\n\n{call}", PARIS)
    yield expect("behind no thoughts", spelling, f"<think>\n\n</think>\n\n{call}", PARIS)
    if spelling.is_marked:
        yield expect("in thoughts", spelling, f"<think>\n{call}\n</think>", PARIS)
        yield expect("in thoughts that go on", spelling, f"<think>\n{call}", PARIS)
        title = f"{spelling.syntax} in reasoning"
        yield Case(title, "", ask(), (PARIS,), reasoning=call)


def with_answer_tool(spelling: Spelling) -> Iterator[Case]:
    """Call a tool while the answer tool is offered, alone and together with the answer tool."""
    for title, calls in (("with respond offered", [PARIS]), ("beside respond", [PARIS, RESPOND])):
        reply = write_anywhere(spelling, *calls)
        title = f"{spelling.syntax} {title}"
        yield Case(title, reply, ask(), (PARIS,), TextPolicy.RESPOND)


def before_prose(spelling: Spelling) -> Iterator[Case]:
    """Write a paragraph after a call with an opening and a closing mark."""
    if spelling.is_marked:
        reply = f"{write_anywhere(spelling, PARIS)}\n\nI will tell you as soon as I know."
        yield expect("before a paragraph", spelling, reply, PARIS)


INLINE = (
    'call:get_weather{city:<|"|>Paris<|"|>}',
    "[get_weather(city='Paris')]",
    '{"name": "get_weather", "arguments": {"city": "Paris"}}',
)


def on_the_line(spelling: Spelling) -> Iterator[Case]:
    """Write a plain call on the line that announces it."""
    call = spelling.one(PARIS)
    if call in INLINE:
        for prose in ("I'll check: ", "Let me look that up. ", "Je vais regarder : "):
            yield expect(f"on the line of {prose!r}", spelling, prose + call, PARIS)


Situation = Callable[[Spelling], Iterator[Case]]

SITUATIONS: dict[str, Situation] = {
    "alone": alone,
    "behind prose": after_prose,
    "on the line of prose": on_the_line,
    "in a row": in_a_row,
    "in white space": in_space,
    "without its closing mark": without_closer,
    "with difficult text": with_text,
    "between control tokens": between_tokens,
    "in thoughts": in_thoughts,
    "beside respond": with_answer_tool,
    "before a paragraph": before_prose,
}


def genuine() -> dict[str, Sequence[Case]]:
    """Return the cases of each situation."""
    return {
        title: [case for spelling in SPELLINGS for case in situation(spelling)]
        for title, situation in SITUATIONS.items()
    }
