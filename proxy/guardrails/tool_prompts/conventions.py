"""Every convention there is."""

from proxy.guardrails.formats.gemma import GemmaConvention
from proxy.guardrails.formats.hermes import HermesConvention
from proxy.guardrails.formats.json_contract import JsonContractConvention
from proxy.guardrails.formats.llama3 import Llama3Convention
from proxy.guardrails.formats.mistral import MistralConvention
from proxy.guardrails.formats.react import ReActConvention
from proxy.guardrails.tool_prompts.fragments import Convention

CONVENTIONS: tuple[Convention, ...] = (
    HermesConvention(),
    MistralConvention(),
    GemmaConvention(),
    Llama3Convention(),
    ReActConvention(),
    JsonContractConvention(),
)


def find_convention(name: str) -> Convention:
    """Return the convention of this name; an unknown one raises KeyError."""
    return {one.name: one for one in CONVENTIONS}[name]
