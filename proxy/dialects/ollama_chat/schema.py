"""What happens to each field of a client's request at an Ollama: the one table of it.

Ollama ignores what it does not know, so nothing may reach it that it would drop in silence: every
field is carried over, kept by Temper, needless for a model by its nature, or refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from proxy.dialects.handling import Enforced, FieldRule, Handling, Member, Needless, Refused


@dataclass(frozen=True, slots=True)
class Option:
    """The value goes into Ollama's `options`, under this name."""

    name: str


UNKNOWN = Refused(
    "Ollama knows no such field. Leave it out; its own parameters go under `options`."
)

FIELDS: Mapping[str, Handling | Option] = MappingProxyType(
    {
        # what OpenAI's clients send
        "model": FieldRule(),
        "messages": FieldRule(),
        "tools": FieldRule(),
        "tool_choice": Enforced(),
        "parallel_tool_calls": Enforced(),
        "functions": Enforced(),
        "function_call": Refused("OfferedTools `tools` and use `tool_choice`.", ("auto", "none")),
        "stream": Enforced(),
        "stream_options": Enforced(),
        "n": Enforced(),
        "max_tokens": FieldRule(),
        "max_completion_tokens": FieldRule(),
        "temperature": Option("temperature"),
        "top_p": Option("top_p"),
        "presence_penalty": Option("presence_penalty"),
        "frequency_penalty": Option("frequency_penalty"),
        "stop": FieldRule(),
        "seed": Option("seed"),
        "logprobs": Member(),
        "top_logprobs": Member(),
        "logit_bias": Refused("Ollama has no such parameter. Leave it out.", ({},)),
        "response_format": FieldRule(),
        "reasoning_effort": FieldRule(),
        "verbosity": Refused("Ollama has no such parameter. Ask for it in words.", ("medium",)),
        "modalities": Refused("Ollama answers with text only. Leave it out.", (["text"],)),
        "audio": Refused("Ollama answers with text only. Leave it out."),
        "web_search_options": Refused("Ollama searches nothing. Offer a tool for it."),
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
        "top_k": Option("top_k"),
        "min_p": Option("min_p"),
        "typical_p": Option("typical_p"),
        "repeat_penalty": Option("repeat_penalty"),
        "repetition_penalty": Option("repeat_penalty"),
        "repeat_last_n": Option("repeat_last_n"),
        "cache_prompt": Refused("Ollama always uses its prompt cache. Leave it out.", (True,)),
        # Ollama's own
        "think": FieldRule(),
        "keep_alive": FieldRule(),
        "options": FieldRule(),
        "format": Refused("Use `response_format`: the answer is then checked as well."),
        "truncate": Refused("A conversation is never cut in silence. Leave it out.", (False,)),
        "shift": Refused("A conversation is never cut in silence. Leave it out.", (False,)),
    }
)

# The parameters that Ollama hands on to the runner of a model; it drops any other without a word.
OPTIONS = frozenset(
    {
        "frequency_penalty",
        "main_gpu",
        "min_p",
        "num_batch",
        "num_ctx",
        "num_gpu",
        "num_keep",
        "num_predict",
        "num_thread",
        "presence_penalty",
        "repeat_last_n",
        "repeat_penalty",
        "seed",
        "stop",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "use_mmap",
    }
)
