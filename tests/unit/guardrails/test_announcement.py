# ruff: noqa: RUF001 - marks of many scripts look alike
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.guardrails.announcement import announces
from tests.fakes.arrivals import is_linear

TOOLS = ("read_file", "webSearch", "HassTurnOn", "grep")

ANNOUNCEMENTS = [
    "I'll have a look at the config and see what's wrong.",
    "I’ll check that for you!",
    "Okay, let me open the file first.",
    "Let me look at the file:",
    "I'm going to search for that now.",
    "I am now updating the ticket.",
    "Checking the logs…",
    "Great, now running the migration.",
    "The server is up again, pushing the branch now.",
    "That's odd. I'd better check the logs.",
    "That file doesn't exist, so I'll list the folder to find the right name.",
    "Let me check if the file exists.",
    "Setting a timer for 10 minutes ⏲️",
    "On it!",
    "One moment, please.",
    "Please wait while I look up your order.",
    "To be sure I need to call `read_file`.",
    'Trying another term: "opening hours".',
    "## Findings\n\n- `parse()` drops a token\n- `lex()` is fine\n\nNow let me write the fix.",
    "I should look first.\n</think>\n\nI'll open the schema.",
    "It needs one change:\n\n```python\nx = 1\n```\n\nI'll apply it now.",
    "**Let me search the web.**",
    "I'll fetch the page. This may take a moment.",
    "I'll read the log. Then I'll let you know what happened.",
    "I'll frobnicate the widget now.",
]
ANSWERS = [
    "The capital of Portugal is Lisbon.",
    "Let me know how it goes!",
    "Let me be honest: this design won't scale.",
    "Let me explain. A mutex is a lock.",
    "I'll explain it with an example.",
    "I'll begin with the bad part: it's slow.",
    "I'll check it as soon as you confirm the date.",
    "If you send me the log, I'll check it for errors.",
    "Which folder? I'll search it right away.",
    "Please share the link. I'll read the article then.",
    'Say "go" and I\'ll get started.',
    "Shall I run the tests?",
    "Should I delete it (I'll make a copy first)?",
    "I've run the tests and they all pass.",
    "I'll always search the web before I answer.",
    "I'll send you the contract tomorrow.",
    "I won't run that command.",
    "I was going to delete the branch, but left it.",
    "Running the tests takes five minutes.",
    "Checking the box enables two-factor authentication.",
    "Then the server will check the signature.",
    'She whispered: "I\'ll check the cellar."',
    "He wrote:\n> I'll check the cellar.",
    "Put this into the prompt:\n```\nSay: I'll check.",
    "I'll check the weather.\n\nIt is 21 °C and sunny in Porto.",
    "Let me calculate: 17 times 3 is 51.",
    "My plan:\n1. read the config\n2. update the parser",
    "Dear Ms. Weber,\n\nI will send the contract.",
    "I can search the web and read files.",
    "I'm looking forward to it!",
    "I'm checking in to see how you're doing!",
    "I'll call this variable `total`.",
    "I'll keep that in mind.",
    "",
]


@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_an_announcement_is_seen(text: str) -> None:
    assert announces(text, TOOLS)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_that_comes_close_stays_one(text: str) -> None:
    assert not announces(text, TOOLS)


@pytest.mark.parametrize("name", ["geocode", "geo_code", "geoCode", "GEO-code", "mcp__geo__code"])
def test_a_word_of_an_offered_tool_is_an_act(name: str) -> None:
    verb = "geocode" if name == "geocode" else "geo"

    assert not announces(f"Let me {verb} that.")
    assert announces(f"Let me {verb} that.", [name])


def test_a_word_of_a_tool_that_is_said_rather_than_done_is_none() -> None:
    assert not announces("Let me explain.", ["explain_code"])


def test_what_two_languages_read_differently_is_an_answer() -> None:
    assert announces("Verifico el archivo.")
    assert not announces("Verifico el archivo cuando me confirmes.")  # Portuguese has no "cuando"


def test_a_long_answer_may_end_in_an_announcement() -> None:
    assert announces(
        "The cause is a stale cache. " * 500 + "I'll clear it now.".replace("clear", "fix")
    )
    assert not announces("I'll fix it now. " + "The cause is a stale cache. " * 500)


ENDINGS = st.sampled_from([*ANNOUNCEMENTS, *ANSWERS])


@given(st.text(), st.lists(st.text(), max_size=3))
@example("'" * 700, ["x"])
@example("\ud800 I'll check", ["\ud800"])
def test_no_text_is_too_strange(text: str, tools: list[str]) -> None:
    assert announces(text, tools) in (True, False)


@given(
    ENDINGS, st.sampled_from("?？؟\u037e"), st.sampled_from(["", ")", '"', " 😊", "!", "**", "\n"])
)
def test_what_ends_in_a_question_mark_is_an_answer(text: str, mark: str, behind: str) -> None:
    assert not announces(text + mark + behind, TOOLS)


@given(ENDINGS, st.text(alphabet="ab .\n", max_size=40))
def test_what_was_said_long_before_changes_nothing(text: str, before: str) -> None:
    filler = f"{before}\n\nIt is so.\n\nIt is.\n\n"

    assert announces(filler + text, TOOLS) == announces(f"It is so.\n\nIt is.\n\n{text}", TOOLS)


@pytest.mark.parametrize(
    "unit", ["I'll check. ", "now ", "a", "'", "`", "```", " ", "?", "我来", "\n"]
)
def test_the_work_is_linear_in_the_text(unit: str) -> None:
    assert is_linear(announces, lambda size: unit * (size // len(unit)), 1_000_000)


def test_work_on_a_flood_of_words_stays_small() -> None:
    assert is_linear(announces, lambda size: "now just " * (size // 9), 600)
