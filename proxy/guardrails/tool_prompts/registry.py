"""Every convention there is."""

from proxy.guardrails.tool_prompts.convention import Convention
from proxy.guardrails.tool_prompts.gemma import GemmaConvention
from proxy.guardrails.tool_prompts.hermes import HermesConvention
from proxy.guardrails.tool_prompts.json_contract import JsonContractConvention
from proxy.guardrails.tool_prompts.llama3 import Llama3Convention
from proxy.guardrails.tool_prompts.mistral import MistralConvention
from proxy.guardrails.tool_prompts.react import ReActConvention

CONVENTIONS: tuple[Convention, ...] = (
    HermesConvention(),
    MistralConvention(),
    GemmaConvention(),
    Llama3Convention(),
    ReActConvention(),
    JsonContractConvention(),
)


def convention(name: str) -> Convention:
    """Return the convention of this name; an unknown one raises KeyError."""
    return {one.name: one for one in CONVENTIONS}[name]
