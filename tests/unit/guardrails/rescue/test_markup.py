import pytest

from proxy.guardrails.rescue.markup import Markup


def after(*texts: str) -> Markup:
    markup = Markup()
    for text in texts:
        markup.pass_text(text)
    return markup


@pytest.mark.parametrize(
    ("text", "closers"),
    [
        ("<div>", ("</div",)),
        ("<div><p></div>", ("</p",)),
        ("<Answer>", ("</answer",)),
        ("a\n----\n", ("\n----",)),
        ("----\na\n----\n", ()),
        (":::note\n", ("\n:::",)),
        ("a\n$$\nb\n$$\n", ()),
        ("{code:json}\n", ("\n{code",)),
        (":::tool_call\n", ()),
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
