from temper_evals.demo.chat_template import chat_template


def test_only_the_chat_template_with_thinking_contains_reasoning() -> None:
    assert "<think>" not in chat_template()
    assert "reasoning_content" in chat_template(thinking=True)
    assert "enable_thinking" in chat_template(thinking=True)


def test_no_placeholder_remains_in_the_chat_template() -> None:
    for template in (chat_template(), chat_template(thinking=True)):
        assert "REASONING" not in template
        assert "NO_THOUGHTS" not in template
        assert template.startswith("{%-")
