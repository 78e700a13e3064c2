import pytest

from proxy.guardrails.rescue.markup import Markup


def after(*texts: str) -> Markup:
    markup = Markup()
    for text in texts:
        markup.pass_text(text)
    return markup


@pytest.mark.parametrize(
    "text",
    [
        "<pre>",
        '<blockquote class="a">\n',
        "<details><summary>x</summary>",
        "<pre><pre></pre>",
        "\\begin{verbatim}\n",
        "\\verb|",
        "#+BEGIN_SRC xml\n",
        "[quote=me]",
        "cat <<'EOF'\n",
        "cat << END",
        'x = """',
        "'''",
        "<!-- ",
        "/* a",
        "“so",
        "「",
        "\\end{a}\\begin{a}",
        "<![CDATA[",
        "$x = @'\n",
        "const a = `\n",
        ".. code-block:: json\n\n  ",
        "{{{\n",
        "=pod\n\n",
        "-----BEGIN MESSAGE-----\n",
        "--- begin quote ---\n",
        "{% raw %}",
        "{# ",
        "\\mintinline{text}|",
        "\\footnote{",
        "[listing]\n",
    ],
)
def test_what_is_open_quotes(text: str) -> None:
    assert after(text).is_quotation
    assert after("a ", text, "b ").is_quotation or text.startswith(
        ("\\verb", "\\mint", "\\foot", ".. ")
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the `<pre>` tag",
        "<pre></pre>",
        "</pre>",
        "<pre/>",
        "<tool_code>",
        "\\begin{a}\\end{a}",
        "#+begin_src\n#+end_src",
        "[code]x[/code]",
        "cat <<EOF\nx\nEOF\n",
        '""" a """',
        "<!-- a -->",
        "/* a */",
        "“so” „so“ «so»",
        "1 << 2",
        "<![CDATA[x]]>",
        "$x = @'\nx\n'@\n",
        "a = `\nx`",
        ".. note:: x\n\n  y\nz",
        "{{{\nx\n}}}",
        "=begin\nx\n=end",
        "-----BEGIN A-----\nx\n-----END A-----",
        "--- begin tool call ---\n",
        "{% raw %}x{% endraw %}",
        "{# x #}",
        "<div>",
    ],
)
def test_what_is_closed_or_none_does_not(text: str) -> None:
    assert not after(text).is_quotation


def test_what_waits_for_its_end_finds_it_in_a_later_text() -> None:
    assert after('"""', " a ", '" ""').is_quotation
    assert not after('"""', ' a """ b').is_quotation


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
