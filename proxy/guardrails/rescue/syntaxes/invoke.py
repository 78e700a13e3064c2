"""`<invoke name="NAME"><parameter name="KEY">value</parameter></invoke>`, in any namespace.

DeepSeek (DSML), MiniMax, Step 3, Muse, dots and models that imitate Claude write it.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged

_NAMESPACES = (
    *("", "antml:", "atem:", "minimax:", "steptml:"),
    *("｜DSML｜", "｜DSML｜ ", "|DSML|"),
)
_MINIMAX = "]<]minimax[>["  # one token before every tag
_WRAPPING = (
    *(f"{namespace}function_calls" for namespace in _NAMESPACES),
    *("tool_call", "tool_calls", "minimax:tool_call", "｜DSML｜tool_calls", "｜DSML｜ calls"),
    *("|DSML|tool_calls", "minimax:tool_calls", "｜DSML｜calls", "|DSML|calls"),
    "dots_function_call",
)
_WRAPPERS = {
    **{f"<{tag}>": f"</{tag}>" for tag in _WRAPPING},
    "<｜tool_calls_begin｜>": "<｜tool_calls_end｜>",
    f"{_MINIMAX}<tool_call>": f"{_MINIMAX}</tool_call>",
}
_NOISE = (
    *("<bos>", "<eos>", "<s>", "</s>"),
    *("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "function<｜tool_sep｜>"),
)


def _loose_ends(namespace: str) -> dict[str, str]:
    """Return the closing marks without their namespace, and those they stand for."""
    tags = ("invoke", "parameter") if namespace else ()
    return {f"</{tag}>": f"</{namespace}{tag}>" for tag in tags}


def _element(before: str, namespace: str) -> Element:
    return Element(
        f"{before}<{namespace}invoke name=",
        f"{before}</{namespace}invoke>",
        (f"{before}<{namespace}parameter name=",),
        f"{before}</{namespace}parameter>",
        f"{before}<",
        token=before,
        loose=_loose_ends(namespace),
    )


class Invoke(Tagged):
    """Invocations and parameters as tags with attributes, with or without a wrapper."""

    def __init__(self) -> None:
        elements = [_element("", namespace) for namespace in _NAMESPACES]
        super().__init__(
            "invoke",
            [*elements, _element(_MINIMAX, "")],
            _WRAPPERS,
            _NOISE,
            is_empty_doubtful=True,
        )
