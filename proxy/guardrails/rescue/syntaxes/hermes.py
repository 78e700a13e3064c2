"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write it."""

from proxy.guardrails.rescue.syntaxes.marked_json import MarkedJson

_WRAPPERS = ("tool_call", "TOOL_CALL", "minimax:tool_call", "seed:tool_call", "functioncall")
_OTHER_CLOSERS = ("</tool_calls>", "</function_call>")


class Hermes(MarkedJson):
    """JSON between tags; several objects, a list or a code fence may stand between them."""

    def __init__(self) -> None:
        super().__init__(
            "hermes",
            [f"<{tag}>" for tag in _WRAPPERS],
            (*(f"</{tag}>" for tag in _WRAPPERS), *_OTHER_CLOSERS),
        )
