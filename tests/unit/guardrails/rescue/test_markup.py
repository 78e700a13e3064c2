import pytest

from proxy.guardrails.rescue.markup import Markup, begins_with_mark, ends_in_mark


def markup_after(*texts: str) -> Markup:
    markup = Markup()
    for text in texts:
        markup.feed(text)
    return markup


def test_a_comment_is_a_quotation_until_its_closing_mark() -> None:
    assert markup_after("<!--", " a ", "- ->").is_quotation
    assert not markup_after("<!--", " a --> b").is_quotation


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
def test_the_layout_lists_the_closing_tags_of_elements_that_do_not_quote(
    text: str, closers: tuple[str, ...]
) -> None:
    assert markup_after(text).layout == closers


def test_the_number_of_tracked_elements_is_limited() -> None:
    markup = markup_after("".join(f"<a{number}>" for number in range(100)))
    assert len(markup.layout) == 64
    markup.feed("</a1>")
    markup.feed("<a1><a99>")
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
def test_the_markup_of_many_languages_before_a_call_is_recognized(text: str) -> None:
    assert ends_in_mark(f"See this.\n\n{text}")


@pytest.mark.parametrize(
    "text", ["</x>", "\n----", "\n\n=cut", ' """', "\n`;", "*/", "|", "{% end %}"]
)
def test_the_markup_of_many_languages_after_a_call_is_recognized(text: str) -> None:
    assert begins_with_mark(text)


@pytest.mark.parametrize("text", ["", "I look.", "I look:\n", "- first,\n", "**Now**\n\nI look.\n"])
def test_words_and_lists_are_not_mistaken_for_marks_of_markup(text: str) -> None:
    assert not ends_in_mark(text)
    assert not begins_with_mark(text)
