# ruff: noqa: RUF001 - marks of many scripts look alike
import pytest

from proxy.guardrails.announcements.endings import find_last_sentences, is_question, normalise

NOTHING_TO_JUDGE = {
    "nothing": "",
    "blanks": " \n\t ",
    "a question": "Shall I?",
    "a block of code that is open": "Here:\n```python\nrun()",
    "a block of code at the end": "Here:\n```python\nrun()\n```",
    "a quotation": "He wrote:\n> I'll check.",
    "a table": "| a | b |",
    "a heading": "## Checking the logs",
    "an item": "I'll:\n- check the logs",
    "a numbered item": "Plan:\n1. check the logs",
    "indented code": "Run\n    make",
    "a draft with a subject": "Subject: Tomorrow\n\nI'll check.",
    "a draft with a salutation": "Dear Ms. Weber,\n\nI'll check.",
    "pictures": "👍 🎉",
}


@pytest.mark.parametrize("text", NOTHING_TO_JUDGE.values(), ids=NOTHING_TO_JUDGE)
def test_some_endings_cannot_announce(text: str) -> None:
    assert find_last_sentences(text) == ()


def test_the_last_sentences_are_returned() -> None:
    assert find_last_sentences("One. Two. Three! Four.") == ("Two.", "Three!", "Four.")
    assert find_last_sentences("One.\n\nTwo:\n\nThree.") == ("Two:", "Three.")


def test_sentences_of_scripts_without_spaces_are_parted() -> None:
    assert find_last_sentences("好的。我来查。") == ("好的。", "我来查。")
    assert find_last_sentences("ठीक है। देखता हूँ।") == ("ठीक है।", "देखता हूँ।")


@pytest.mark.parametrize("text", ["Mr. Weber is in.", "See foo.py or 3.5 of it.", "E. T. is here."])
def test_a_full_stop_within_a_sentence_does_not_end_it(text: str) -> None:
    assert find_last_sentences(text) == (text,)


def test_thoughts_and_blocks_of_code_before_the_end_are_left_out() -> None:
    assert find_last_sentences("Mine. Let me see.\n</think>\n\nDone.") == ("Done.",)
    assert find_last_sentences("I'll check.\n```\nx\n```\nDone.") == ("Done.",)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("**Now** see _this_ [page](https://a.b/c)", "Now see this page"),
        ("Use `run_tests` now", "Use ` now"),
        ('"I\'ll check", he said', '", he said'),
        ("'I'll check', he said", '", he said'),
        ("« Je regarde », dit-elle", '", dit-elle'),
        ("„Ich prüfe das“, sagt er", '", sagt er'),
        ("「見てくる」と言った", '"と言った'),
    ],
)
def test_markup_quotations_and_code_are_taken_out(written: str, plain: str) -> None:
    assert find_last_sentences(written) == (plain,)


@pytest.mark.parametrize("mark", ["?", "？", "؟", "?!", "?)", '?"', "? 😊", "?**", "\u037e"])
def test_a_question_mark_counts_if_no_word_follows(mark: str) -> None:
    assert is_question(f"Shall I{mark}")


@pytest.mark.parametrize("text", ["", "No.", "Why? Because."])
def test_anything_else_is_no_question(text: str) -> None:
    assert not is_question(text)


@pytest.mark.parametrize(
    ("sentence", "ready"),
    [
        ("Sure, I’ll CHECK.", " sure , i'll check "),
        ("Now – at 14:15 – the logs:", " now , at 14:15 , the logs : "),
        ("好的，我来查：", " 好的 , 我来查 : "),
        ("J'ouvre l'onglet…", " j' ouvre l' onglet … "),
        ("Checking (again)...", " checking , again … "),
    ],
)
def test_words_and_marks_stand_between_spaces(sentence: str, ready: str) -> None:
    found = normalise(sentence)

    assert found.text == ready
    assert found.words == frozenset(ready.split())
