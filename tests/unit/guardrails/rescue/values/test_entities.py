import pytest

from proxy.guardrails.rescue.values.entities import unescaped


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("Tom &amp; Jerry", "Tom & Jerry"),
        ("say &quot;hi&quot;, it&#39;s", 'say "hi", it\'s'),
    ],
)
def test_text_that_was_escaped_throughout_is_read_as_it_was_meant(text: str, meant: str) -> None:
    assert unescaped(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "a & b",
        "<b>Tom &amp; Jerry</b>",
        "a && b &lt; c",
        "a &nbsp; b &amp; c",
        'say "hi" &quot;',
        "it's &apos;",
    ],
)
def test_text_in_which_something_was_not_escaped_is_left_alone(text: str) -> None:
    assert unescaped(text) == text
