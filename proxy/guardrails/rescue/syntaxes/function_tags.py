"""`<function name="NAME"><param name="KEY">value</param></function>`, as MiniCPM writes it.

Other models do the same to other tags: `<tool_call name="NAME">`.
"""

from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged


class FunctionTags(Tagged):
    """Functions and parameters as tags with a name attribute, the space often missing."""

    def __init__(self) -> None:
        super().__init__(
            "function_tags",
            [
                Element(
                    call,
                    "</function>",
                    ("<param name=", "<paramname="),
                    "</param>",
                    others={"<parameter name=": "</parameter>"},
                )
                for call in ("<function name=", "<functionname=")
            ],
            {"<tool_call>": "</tool_call>", "<function_calls>": "</function_calls>"},
        )


class AttributedTags(Tagged):
    """Calls whose tag has the tool's name as an attribute; JSON or parameters stand between."""

    def __init__(self) -> None:
        super().__init__(
            "attributed_tags",
            [
                Element(
                    f"<{tag} name=",
                    f"</{tag}>",
                    ("<parameter name=", "<parameter="),
                    "</parameter>",
                    "<",
                    others={"<param name=": "</param>", "<arg name=": "</arg>"},
                )
                for tag in ("tool_call", "function_call", "tool_use", "tool")
            ],
            {"<tool_calls>": "</tool_calls>", "<function_calls>": "</function_calls>"},
        )
