import pytest

from proxy.guardrails.rescue.markup import Markup, begins_with_mark, ends_in_mark


def after(*texts: str) -> Markup:
    markup = Markup()
    for text in texts:
        markup.pass_text(text)
    return markup


def test_what_waits_for_its_end_finds_it_in_a_later_text() -> None:
    assert after("<!--", " a ", "- ->").is_quotation
    assert not after("<!--", " a --> b").is_quotation


@pytest.mark.parametrize(
    ("text", "closers"),
    [
        ("<div>", ("</div",)),
        ("<div><p></div>", ("</p",)),
        ("<Answer>", ("</answer",)),
        ("<pre>", ()),
        ("<think>", ()),
    ],
)
def test_other_elements_are_told_by_how_they_would_be_closed(
    text: str, closers: tuple[str, ...]
) -> None:
    assert after(text).layout == closers


def test_so_many_different_ones_are_followed() -> None:
    markup = after("".join(f"<a{number}>" for number in range(100)))
    assert len(markup.layout) == 64
    markup.pass_text("</a1>")
    markup.pass_text("<a1><a99>")
    assert len(markup.layout) == 64


@pytest.mark.parametrize(
    "text",
    [
        "=pod\n\n",
        "----\n",
        ":::note\n",
        "{noformat}",
        "-----BEGIN MESSAGE-----\n",
        "{% raw %}",
        "a = `\n",
        "\\verb|",
        "$$\n",
    ],
)
def test_marks_of_any_language_are_known_by_where_they_are(text: str) -> None:
    assert ends_in_mark(f"See this.\n\n{text}")


@pytest.mark.parametrize(
    "text", ["</x>", "\n----", "\n\n=cut", ' """', "\n`;", "*/", "|", "{% end %}"]
)
def test_marks_behind_a_call_are_known_as_well(text: str) -> None:
    assert begins_with_mark(text)


@pytest.mark.parametrize("text", ["", "I look.", "I look:\n", "- first,\n", "**Now**\n\nI look.\n"])
def test_words_and_lists_are_no_marks(text: str) -> None:
    assert not ends_in_mark(text)
    assert not begins_with_mark(text)
