"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write it."""

from proxy.guardrails.rescue.marked_json import MarkedJson


class Hermes(MarkedJson):
    """JSON between tags; several objects, a list or a code fence may stand between them."""

    def __init__(self) -> None:
        super().__init__(
            "hermes", ("<tool_call>",), ("</tool_call>", "</tool_calls>", "</function_call>")
        )
