"""Every convention there is."""

from proxy.guardrails.injection.convention import Convention
from proxy.guardrails.injection.gemma import GemmaConvention
from proxy.guardrails.injection.hermes import HermesConvention
from proxy.guardrails.injection.json_contract import JsonContractConvention
from proxy.guardrails.injection.llama3 import Llama3Convention
from proxy.guardrails.injection.mistral import MistralConvention
from proxy.guardrails.injection.react import ReActConvention

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
