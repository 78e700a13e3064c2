"""`<function name="NAME"><param name="KEY">value</param></function>`, as MiniCPM writes it."""

from proxy.guardrails.rescue.tagged import Element, Tagged


class FunctionTags(Tagged):
    """Functions and parameters as tags with a name attribute, the space often missing."""

    def __init__(self) -> None:
        super().__init__(
            "function_tags",
            [
                Element(call, "</function>", ("<param name=", "<paramname="), "</param>")
                for call in ("<function name=", "<functionname=")
            ],
            {"<tool_call>": "</tool_call>", "<function_calls>": "</function_calls>"},
        )
