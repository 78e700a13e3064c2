"""`<function=NAME><parameter=KEY>value</parameter></function>`, as Qwen3-Coder writes it.

Nemotron, Step, MiMo, Granite and Seed write the same, and Llama 3 JSON in place of parameters.
"""

from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged


class QwenCoder(Tagged):
    """Functions and parameters as tags, with or without `<tool_call>` around them."""

    def __init__(self) -> None:
        super().__init__(
            "qwen_coder",
            (
                Element(
                    "<function=",
                    "</function>",
                    ("<parameter=", "<parameter name="),
                    "</parameter>",
                    "<",
                    has_lines=True,
                    others={"<param=": "</param>"},
                ),
            ),
            {"<tool_call>": "</tool_call>", "<seed:tool_call>": "</seed:tool_call>"},
        )
