"""What becomes of each field of a client's request at Anthropic's API: the one table of it.

The API refuses what it does not know, in words about its own fields. So every field is carried
over, kept by Temper, needless for a model by its nature, or refused by the name the client knows.
"""

from collections.abc import Mapping
from types import MappingProxyType

from proxy.dialects.handling import Enforced, FieldRule, Handling, Member, Needless, Refused

UNKNOWN = Refused("Anthropic's API knows no such field. Leave it out.")

_NO_PARAMETER = "Anthropic's API has no such parameter. Leave it out."
_TEXT_ONLY = "Anthropic's models answer with text only. Leave it out."

FIELDS: Mapping[str, Handling] = MappingProxyType(
    {
        # what OpenAI's clients send
        "model": FieldRule(),
        "messages": FieldRule(),
        "tools": FieldRule(),
        "tool_choice": FieldRule(),
        "parallel_tool_calls": FieldRule(),
        "functions": Enforced(),
        "function_call": Refused("OfferedTools `tools` and use `tool_choice`.", ("auto", "none")),
        "stream": Enforced(),
        "stream_options": Enforced(),
        "n": Enforced(),
        "max_tokens": FieldRule(),
        "max_completion_tokens": FieldRule(),
        "temperature": Member(),
        "top_p": Member(),
        "presence_penalty": Refused(_NO_PARAMETER, (0,)),
        "frequency_penalty": Refused(_NO_PARAMETER, (0,)),
        "stop": FieldRule(),
        "seed": Refused(_NO_PARAMETER),
        "logprobs": Refused(_NO_PARAMETER, (False,)),
        "top_logprobs": Refused(_NO_PARAMETER, (0,)),
        "logit_bias": Refused(_NO_PARAMETER, ({},)),
        "response_format": FieldRule(),
        "reasoning_effort": FieldRule(),
        "verbosity": Refused("Anthropic's API has no such parameter. Ask in words.", ("medium",)),
        "modalities": Refused(_TEXT_ONLY, (["text"],)),
        "audio": Refused(_TEXT_ONLY),
        "web_search_options": Refused("Nothing here runs the search. Offer a tool for it."),
        "prediction": Needless(),
        "store": Needless(),
        "user": Needless(),
        "metadata": Needless(),
        "service_tier": Needless(),
        "safety_identifier": Needless(),
        "prompt_cache_key": Needless(),
        "prompt_cache_retention": Needless(),
        # Temper's own
        "temper": Enforced(),
        # what clients of other engines send
        "chat_template_kwargs": FieldRule(),
        "top_k": Member(),
        "min_p": Refused(_NO_PARAMETER, (0,)),
        "typical_p": Refused(_NO_PARAMETER, (1,)),
        "repeat_penalty": Refused(_NO_PARAMETER, (1,)),
        "repetition_penalty": Refused(_NO_PARAMETER, (1,)),
        "cache_prompt": Refused(_NO_PARAMETER, (True,)),
        # Anthropic's own
        "thinking": FieldRule(),
        "cache_control": FieldRule(),
        "stop_sequences": Refused("Use `stop`."),
        "system": Refused("Send it as the first message, with the role `system`."),
    }
)
