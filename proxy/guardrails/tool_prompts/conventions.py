"""The contract of a convention: a way to describe tools, calls and results as plain text.

A convention asks the model for a form that a rescue syntax reads, and writes the calls of the
history in the same form, so that they serve as examples. Whatever it writes
  - depends on its arguments alone, so that a prompt keeps its bytes from turn to turn;
  - holds a call so that the reader finds the same call again;
  - holds names, arguments and results so that none of them can end the form around it.
"""

from collections.abc import Sequence
from typing import Protocol

from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.formats.gemma import GemmaConvention
from proxy.guardrails.formats.hermes import HermesConvention
from proxy.guardrails.formats.json_contract import JsonContractConvention
from proxy.guardrails.formats.llama3 import Llama3Convention
from proxy.guardrails.formats.mistral import MistralConvention
from proxy.guardrails.formats.react import ReActConvention


class Convention(Protocol):
    """One way to describe tools in a prompt."""

    @property
    def name(self) -> str:
        """The word by which profiles refer to this convention."""

    @property
    def syntaxes(self) -> tuple[str, ...]:
        """The names of the rescue syntaxes that read what it asks for, to be tried first."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings at which a reply is to end, because the model only invents what follows."""

    @property
    def answer_label(self) -> str:
        """What stands before an answer in the history, nothing where prose is an answer."""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the instructions and the tools; `respond` is the synthetic one, if offered."""

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write an assistant message that said `text` and made `calls`."""

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write the result of the call `call_id` of the tool `name`."""


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
