"""Tests whether a call is accepted, ambiguous or text, depending on the text around the call."""

import pytest

from proxy.conversation.replies import TextDelta
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply, ReplyReader
from proxy.guardrails.rescue.registry import order_syntaxes
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import make_tool

LOOK = make_tool("look", {"type": "object", "properties": {"at": {"type": "string"}}})
OFFER = OfferedTools((LOOK,), TextPolicy.AUTO, order_syntaxes(()))
PLAIN = '{"name": "look", "arguments": {"at": "x"}}'
CALL = f"<tool_call>{PLAIN}</tool_call>"
# In each text, § is replaced by CALL, and ¶ by PLAIN, a call without tags.
OUTCOMES = {
    "call": (
        # The text before a call
        *("§", " \n§", "Let me look. §", "I will check the example file:\n§"),
        *("I check the disk usage:\n§", "## Disk usage\n§"),
        *("I could not find it. Let me search:\n§", "I do it like this:\n§"),
        *("Let me call it as follows:\n§", "It should work now.\n§"),
        *("The page says that it is closed.\n§", "I use the tool:\n§", "Not found.\n§"),
        *("I look.\n§", "You asked for it. I look:\n§", "He said so.\n\nNow:§"),
        *("Let me look at the example file:\n§", "I will check an example. §"),
        *("I check the format first:\n§", "For example, one can look. Let me do that:\n§"),
        *("This is it:\n§", "One. §", "First query: §", "Really?§", "\u597d\u7684\u3002§"),
        *("so\n§", "</p> §", "a: \n\n§", "Use §", "One, §", "one\ntwo§"),
        *("Here's the tool call:\n§", "So here is the function call: §"),
        *("HERE'S THE TOOL-CALL.\n§", "Here's a tool call:\n§", "Here is the call\n§"),
        "Here is the tool call that failed:\n§",
        # Code, quotation marks and lines that quote
        *("```\n§", "§", "text §", "`a` and §", "an open ` on another line\n§"),
        *("```\ncode\n```\n§", "```\ncode\n``` §", "in the line `` is nothing§", "``§"),
        *("``a``§", "it's §", '"so" §', "a > §", "> a\nb §", "1 + §", "~~~\nx\n~~~\n§"),
        *("~~a~~ §", "$5 §", "--a §", "12:30 §", "Users §", "( §", '"<tool_calls>x\n§'),
        # Markup
        *("§", "the `<pre>` tag§", "<pre></pre>§", "</pre>§", "<pre/>§", "<tool_code>§"),
        *("\\begin{a}\\end{a}§", "[code]x[/code]§", "cat <<EOF\nx\nEOF\n§", "<!-- a -->§"),
        *("/* a */§", "1 << 2§", "<![CDATA[x]]>§", "$x = @'\nx\n'@\n§"),
        *(".. note:: x\n\n  y\nz§", "{{{\nx\n}}}§", "=begin\nx\n=end§"),
        *("-----BEGIN A-----\nx\n-----END A-----§", "--- begin tool call ---\n§"),
        *("{% raw %}x{% endraw %}§", "<div>§", "a {{{\nb §", "a =pod\n\nb §"),
        *("a -----BEGIN MESSAGE-----\nb §", "a --- begin quote ---\nb §", "<Answer>§</answer>"),
        *("<think>§</think>", '""" a """\n§'),
        # The text after a call
        *("§Then more.", "§ Then more.", "§ §", "§\n§", "I look.\n§ Then more."),
        # JSON before a call
        *('{"a": 1} and\n§', '{"a": "b {", "c": [1, -2.5e3, true, None, ...], } and\n§'),
        *("{'a': \"it's\"} and\n§", '{"a": "\\"}"} and\n§', '[{"a": []}, "b"] and\n§'),
        *('{\n  "a": {"b": "two\nlines"}\n} and\n§', '{"a": ' + "1" * 70 + "} and\n§"),
        *("{x} is and\n§", "[] and\n§", "[1] foo and\n§", "[link](to) and\n§"),
        *('{"x"} and and\n§', "{{x}} and\n§", "[" * 70 + " and\n§", "{: and\n§", "] and\n§"),
        *('{"a" and\n§', '["a", "b" and\n§'),
        # A call without marks
        *(
            "¶",
            "I look.\n¶",
            "Let me look.\n¶",
            "Here's the tool call:\n¶",
        ),
        *("So here is the function call:\n¶", "Here is the tool call that failed:\n¶"),
        *("Here's the tool call:\n```json\n¶\n```", "Here is the call:\n```json\n¶\n```"),
    ),
    "ambiguous": (
        # Calls joined by words
        *("§, §", "§ and §", "§, and then §", "§; then §", "§,\n§"),
        "The page says it all.\n¶",
        # Words or marks on the line of a call (docs/ablation.md)
        *(
            "----\na\n----\n§\n----\n",
            "a\n$$\nb\n$$\n§\n$$\n",
            ":::tool_call\n§\n:::",
            "§ and more",
            "§ wo",
            "§ 123",
            "§ {x}",
            "§ this too",
            "§ - done",
            "§ \U0001f44d",
            "§andy",
            "§ and more<|im_end|>",
            "§ 12\nThen",
            "Here is the call\n¶",
            "§, § are two.",
        ),
        # Code, quotation marks and lines that quote
        "```\none\n```\n```\n§",
        # Markup
        *("<div>\n§\n</div>", "a\n----\n§\n----\n", ":::note\n§\n:::"),
        # The text after a call
        *("§ is it", "§ means this", "§ would do", "§ gets it", '§" he said', "§` and"),
        *("§ for it", "§ or", "§ or more", "§, too", "§.", "§ gives it", "§) and", "§ vs. y"),
        *("§\nThat was an example.", "§\n\nThat was an example.", "§ Shall I?", "§\nShall I?"),
        *("§ or §", "§and§", "I look.\n§ Shall I?"),
        # A call without marks
        *("¶ is it", "¶\nDone.", "So\n¶ x"),
    ),
    "text": (
        # Calls joined by words, with text before the first call
        *("I look.\n§, §", "I look.\n§ and §"),
        # The text before a call
        *("For example: §", "A call, e.g. §", "as in §", "It looks like this:\n§"),
        *("An example call is §", "Here is a simple example\n§", "Done. Example of another: §"),
        *("1. Example: §", "**Example:**\n§", "## Usage\n\n§", "Tool usage:\n§"),
        *("That is it. Syntax:\n§", "The format would be §", "Use the following syntax:\n§"),
        *("You would write\n§", "Models wrote it so. Users can just send: §"),
        *("The reply would then be:\n\n§", "The log says: §", "I will not call §"),
        *("I don't use the §", "Say it instead of calling §", "It works like this:\n§"),
        *("Example:\n```xml\n§", "Zum Beispiel so:\n§", "Par exemple : §"),
        *("\u4f8b\u5982\uff1a§", "\uc608: §", "You could send\n§"),
        *("Let me see. The server returned\n§", "for instance, §", "Formats, e.g. §"),
        *("a tag such as §", "A call looks like this:\n\n§", "it looks like §"),
        *("Here is an example:\n§", "Here's an example of a tool call:\n§"),
        *("Example tool call: §", "The format is:\n§", "The tool call format: §"),
        *("x" * 500 + " For example: §", "For example: look here, §", "it is (§"),
        # Code, quotation marks and lines that quote
        *("```xml\nlike this: §", "text\n  ```json\n{}\n§", "````\n§", "``` a ` b§", "Write `§"),
        *("`a` and `§", "`§", "say '§", 'say "§', "say \u201c§", "say \xab§", "```\n```` `§"),
        *("> §", "You wrote:\n\n> see §", "+§", "-old\n +§", "~~~\n§", "~~~xml\nlike\n§"),
        *("~~~\n~~\n```\n```\n§", "$ echo §", "-- §", ";; §", "% §", "[2026-01-01 12:00] §"),
        *("12:00:01 INFO §", "User: §", "bq. §", "\u2018§", "(§", '"<tool_calls>§'),
        *('"<tool_calls>\n §', "For example:\n§\nor\n§"),
        # Markup
        *("<pre>§", '<blockquote class="a">\n§', "<details><summary>x</summary>§"),
        *("<pre><pre></pre>§", "\\begin{verbatim}\n§", "#+BEGIN_SRC xml\n§"),
        *("[quote=me]§", "cat <<'EOF'\n§", "cat << END§", 'x = """§', "'''§", "<!-- §", "/* a§"),
        *(
            "\u201cso§",
            "\u300c§",
            "\\end{a}\\begin{a}§",
            "<![CDATA[§",
        ),
        *("--- begin quote ---\n§", "{# §", "\\verb|§", "\\footnote{§", "\\texttt{§}"),
        *(".. code-block:: json\n\n  §", "{{{\n§"),
        *("[listing]\n§", "#+begin_src\n#+end_src§"),
        *('""" a """§', "\u201cso\u201d \u201eso\u201c \xabso\xbb§", "a = `\nx`§", "{# x #}§"),
        *("a <pre>b §", 'a <blockquote class="a">\nb §', "a <details><summary>x</summary>b §"),
        *("a <pre><pre></pre>b §", "a \\begin{verbatim}\nb §", "a #+BEGIN_SRC xml\nb §"),
        *("a [quote=me]b §", "a cat <<'EOF'\nb §", "a cat << ENDb §", 'a x = """b §'),
        *("a '''b §", "a <!-- b §", "a /* ab §", "a \u201csob §", "a \u300cb §"),
        *(
            "a \\end{a}\\begin{a}b §",
            "a <![CDATA[b §",
        ),
        *("a [listing]\nb §", "<div>§</div>"),
        *("<div><p></div>§</p>", "<div><p></div>§</div>", "{code:json}\n§\n{code}"),
        *("<pre>§</pre>", '""" a " ""§'),
        # The text after a call
        *("Use § and more", "Use § Then more.", "Use § because of it"),
        *("Use § is it", "Use §, §", "Use § or §", "I look.\n§ and more"),
        *("I look.\n§\nThat was an example.", "I look.\n§ is it"),
        # JSON before a call
        *('{"a": "b" and\n§', '{"a": "b} and\n§', '{"a": "\\ and\n§', '{"a": "b" c} and\n§'),
        *('{"a": "b" "c"} and\n§', '{"a": b} and\n§', '{"a": [1} and\n§', '{"a": 1 2} and\n§'),
        *('{"a": <b>} and\n§', '{"a": "Do this. § Then that."}'),
        *('So:\n{"a": "Do this. § Then that."}', '{"a": "b" c, "d": "Do this.\n§\n"}'),
        '{"a": "b" c, "d": "Do this.\n§\n"}\n§\nmore\n',
        # A call without marks
        *("So ¶", "So here is the function call: ¶", "You could send\n¶", "He wrote:\n¶"),
        "```\n# Then:\n```json\n¶\n```",
    ),
}


def read(pieces: list[str]) -> ReadReply:
    reader = ReplyReader(OFFER)
    for piece in pieces:
        reader.read(TextDelta(piece))
    return reader.finish("stop")[1]


@pytest.mark.parametrize(
    ("outcome", "text"), [(outcome, text) for outcome, texts in OUTCOMES.items() for text in texts]
)
def test_the_text_around_a_call_decides_whether_it_is_accepted_ambiguous_or_text(
    outcome: str, text: str
) -> None:
    filled = text.replace("§", CALL).replace("¶", PLAIN)
    reply = read([filled])
    calls = [WrittenCall("look", {"at": "x"})] * max(1, text.count("§"))
    assert [*reply.calls] == (calls if outcome == "call" else [])
    assert bool(reply.ambiguous) == (outcome == "ambiguous")
    assert (reply.text == filled) == (outcome != "call")
    assert read([*filled]) == reply


@pytest.mark.parametrize("unit", ['"a": ', '{"a":', "1", '"', "\\", "[", "a "])
def test_reading_json_before_a_call_takes_linear_time(unit: str) -> None:
    def flood(size: int) -> str:
        return '{"a": ' + unit * (size // len(unit))

    assert is_linear(lambda text: read([text]), flood, 20_000)
