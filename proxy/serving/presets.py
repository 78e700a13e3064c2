"""Presets: additional names of a model with other defaults; the model is loaded only once.

A value in the request takes precedence over the preset, as with parameters of an Ollama Modelfile.
A preset adds its system message to a request that has none. The message is always the same, so
that the engine can reuse its prompt cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import structs

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request
from proxy.conversation.roles import SYSTEM
from proxy.settings.models import Preset

# The setting `thinking` -> `Thinking.is_on`. With None, the model's own setting applies.
_THINKING = {"on": True, "off": False, "auto": None}


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of one preset; `fields` are members of a chat request, as JSON."""

    thinking: bool | None = None
    effort: str = ""
    system_prompt: str = ""
    fields: Mapping[str, bytes] = field(default_factory=dict)

    def apply(self, request: Request) -> Request:
        """Return the request with the defaults for parameters that it does not set."""
        fields = {**self.fields, **request.fields}
        thinking = request.thinking.or_else(self.thinking, self.effort)
        request = structs.replace(request, fields=fields, thinking=thinking)
        if self.system_prompt and all(message.role not in SYSTEM for message in request.messages):
            content: JsonObject = {"role": "system", "content": self.system_prompt}
            system = Message("system", self.system_prompt, json.dump(content))
            return request.prepend_messages((system,))
        return request


def defaults_of(preset: Preset) -> Defaults:
    sampling = preset.model_dump(
        include={"temperature", "top_p", "top_k", "min_p", "presence_penalty"}, exclude_none=True
    )
    return Defaults(
        _THINKING[preset.thinking],
        "" if preset.effort == "auto" else preset.effort,
        preset.system_prompt,
        {name: json.dump(value) for name, value in sampling.items()},
    )
