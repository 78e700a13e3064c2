import pytest

from proxy.guardrails.rescue.examples import introduces_example
from proxy.guardrails.rescue.surroundings import ProseDocument, Surroundings
from tests.fakes.arrivals import chunkings, is_linear


def after(text: str) -> tuple[bool, bool]:
    """Return whether it is known that a text is a document, and whether it is over."""
    results = set()
    for pieces in chunkings(text):
        document = ProseDocument()
        for piece in pieces:
            document.pass_text(piece)
        results.add((document.is_known, document.is_over))
    assert len(results) == 1
    return results.pop()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"a": "b {", "c": [1, -2.5e3, true, None, ...], } and more',
        "{'a': \"it's\"}",
        '{"a": "\\"}"}',
        '[{"a": []}, "b"]\n',
        '{\n  "a": {"b": "two\nlines"}\n}',
    ],
)
def test_a_document_ends_with_its_last_bracket(text: str) -> None:
    assert after(text) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "b"',
        '{"a": "b}',
        '{"a": "\\',
        '{"a": "b" c}',
        '{"a": "b" "c"}',
        '{"a": b}',
        '{"a": [1}',
        '{"a": 1 2}',
        '{"a": <b>}',
        '{"a": ' + "1" * 2_000 + "}",
    ],
)
def test_a_document_that_breaks_or_goes_on_has_no_end(text: str) -> None:
    assert after(text) == (True, False)
    assert after(f"{text}}}]") == (True, text in ('{"a": "b"',))


@pytest.mark.parametrize(
    "text", ["{x} is", "{}", "[1] foo", "[link](to)", '{"x"} and', "{{x}}", "[" * 70, "{:", "]"]
)
def test_other_brackets_begin_no_document(text: str) -> None:
    assert after(text) == (False, True)


def test_nothing_is_known_before_the_first_key_ends() -> None:
    assert after('{"a"') == (False, False)
    assert after('["a", "b"') == (False, False)


@pytest.mark.parametrize("unit", ['"a": ', '{"a":', "1", '"', "\\", "[", "a "])
def test_work_is_linear(unit: str) -> None:
    def work(text: str) -> None:
        document = ProseDocument()
        for start in range(0, len(text), 16):
            document.pass_text(text[start : start + 16])

    assert is_linear(work, lambda size: '{"a": ' + unit * (size // len(unit)), 50_000)


def after_text(text: str) -> tuple[bool, bool]:
    """Return whether the place behind `text` is a quotation and whether it begins a line."""
    results = set()
    for pieces in chunkings(text):
        surroundings = Surroundings()
        for piece in pieces:
            surroundings.pass_prose(piece)
        results.add((surroundings.is_quotation, surroundings.is_line_start))
    assert len(results) == 1
    return results.pop()


@pytest.mark.parametrize(
    "text",
    [
        "```\n",
        "```xml\nlike this: ",
        "text\n  ```json\n{}\n",
        "````\n",
        "```\none\n```\n```\n",
        "``` a ` b",
        "Write `",
        "`a` and `",
        "`",
        "say '",
        'say "',
        "say “",
        "say «",
        "```\n```` `",
    ],
)
def test_code_and_quote_marks_make_a_quotation(text: str) -> None:
    assert after_text(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text ",
        "`a` and ",
        "an open ` on another line\n",
        "```\ncode\n```\n",
        "```\ncode\n``` ",
        "in the line `` is nothing",
        "``",
        "``a``",
        "it's ",
        '"so" ',
    ],
)
def test_other_places_are_the_models_own_words(text: str) -> None:
    assert not after_text(text)[0]


@pytest.mark.parametrize(
    ("text", "is_start"), [("", True), ("\n \t", True), ("a", False), ("a\n", True), ("\n`", False)]
)
def test_a_line_begins_behind_indentation_only(text: str, is_start: bool) -> None:
    assert after_text(text)[1] == is_start


def test_behind_a_call_nothing_is_quoted_and_no_line_begins() -> None:
    surroundings = Surroundings()
    surroundings.pass_call()
    assert (surroundings.is_quotation, surroundings.is_line_start) == (False, False)


def last_of(text: str) -> tuple[bool, bool]:
    """Return whether a sentence begins behind `text`, and whether it announces an example."""
    results = set()
    for pieces in chunkings(text):
        surroundings = Surroundings()
        for piece in pieces:
            surroundings.pass_prose(piece)
        results.add((surroundings.is_sentence_start, introduces_example(surroundings.last_words)))
    assert len(results) == 1
    return results.pop()


@pytest.mark.parametrize(
    "text",
    ["", "One. ", "First query: ", "Really?", "\u597d\u7684\u3002", "so\n", "</p> ", "a: \n\n"],
)
def test_a_sentence_begins_behind_another_or_on_a_line(text: str) -> None:
    assert last_of(text)[0]


@pytest.mark.parametrize("text", ["Use ", "One, ", "it is (", "one\ntwo"])
def test_within_a_sentence_none_begins(text: str) -> None:
    assert not last_of(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "For example: ",
        "for instance, ",
        "Formats, e.g. ",
        "a tag such as ",
        "A call looks like this:\n\n",
        "it looks like ",
        "Here is an example:\n",
        "Here's an example of a tool call:\n",
        "Example:\n```xml\n",
        "Example tool call: ",
        "The format is:\n",
        "Use the following syntax:\n",
        "The tool call format: ",
        "\u4f8b\u5982\uff1a",
        "x" * 500 + " For example: ",
    ],
)
def test_examples_are_announced(text: str) -> None:
    assert last_of(text)[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Let me look at the example file:\n",
        "I will check an example. ",
        "I check the format first:\n",
        "For example, one can look. Let me do that:\n",
        "This is it:\n",
        "For example: look here, ",
    ],
)
def test_other_words_announce_none(text: str) -> None:
    assert not last_of(text)[1]


def test_behind_an_example_another_one_may_follow_but_behind_a_call_none() -> None:
    surroundings = Surroundings()
    surroundings.pass_prose("For example:\n")
    surroundings.pass_example("<call>")
    assert (introduces_example(surroundings.last_words), surroundings.is_line_start) == (
        True,
        False,
    )
    surroundings.pass_call()
    assert (introduces_example(surroundings.last_words), surroundings.is_sentence_start) == (
        False,
        True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "> ",
        "You wrote:\n\n> see ",
        "+",
        "-old\n +",
        "~~~\n",
        "~~~xml\nlike\n",
        "~~~\n~~\n```\n```\n",
        "$ echo ",
        "-- ",
        ";; ",
        "% ",
        "[2026-01-01 12:00] ",
        "12:00:01 INFO ",
        "User: ",
        "bq. ",
        "\N{LEFT SINGLE QUOTATION MARK}",
        "(",
    ],
)
def test_lines_can_be_marked_as_quoted(text: str) -> None:
    assert after_text(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a > ",
            "> a\nb ",
            "1 + ",
            "~~~\nx\n~~~\n",
            "~~a~~ ",
            "$5 ",
            "--a ",
            "12:30 ",
            "Users ",
            "( ",
        )
    ],
)
def test_other_lines_are_not_quoted(text: str) -> None:
    assert not after_text(text)[0]


def test_what_follows_a_quoted_opening_at_once_is_quoted() -> None:
    surroundings = Surroundings()
    surroundings.pass_prose('"')
    surroundings.pass_quoted("<tool_calls>")
    surroundings.pass_prose("\n ")
    assert surroundings.is_quotation
    surroundings.pass_prose("x")
    assert not surroundings.is_quotation


def test_a_place_is_apart_behind_white_space() -> None:
    surroundings = Surroundings()
    assert not surroundings.is_apart
    surroundings.pass_prose("Use")
    assert not surroundings.is_apart
    surroundings.pass_prose(" ")
    assert surroundings.is_apart
