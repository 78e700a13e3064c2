"""A table of the engines with chat completions: how each is recognized, and its missing features.

The comment before each engine names the sources of its entry. Missing features that are not listed
here are learned from the refusals of an engine (`capabilities`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.backends.capabilities import Capability
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object, as_positive


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of server.

        {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}

    - `owners`: the values of `owned_by` by which the engine is recognized.
    - `window_fields`: the members of a model's entry, or of the entry's `metadata`, that may hold
      the window in tokens; the first member with a positive integer is used.
    - `catalogue`: the path of a list of models with the window, if `/v1/models` does not report it.
    - `tokenizes`: True if `/tokenize` takes a chat with tools.
    - `version`: the path of a document with the engine's build.
    - `lacks`: features that no build has.
    """

    name: str
    owners: frozenset[str]
    window_fields: tuple[str, ...] = ("max_model_len",)
    catalogue: str = ""
    tokenizes: bool = False
    version: str = ""
    lacks: frozenset[Capability] = field(default_factory=frozenset)


ENGINES = (
    # owned_by, max_model_len and root: vllm/entrypoints/openai/engine/protocol.py, ModelCard.
    # /tokenize with messages and tools: the same package, TokenizeChatRequest.
    # With a tool parser, `required` constrains only the syntax of a call, not its arguments (seen
    # in 0.32.0).
    Engine(
        "vLLM",
        frozenset({"vllm"}),
        tokenizes=True,
        version="/version",
        lacks=frozenset({Capability.BOUND_ARGUMENTS}),
    ),
    # owned_by and max_model_len: sglang/srt/entrypoints/openai/protocol.py, ModelCard. SGLang's
    # /tokenize takes only a prompt, and with tool_choice "none" SGLang omits the tools from the
    # prompt.
    Engine("SGLang", frozenset({"sglang"})),
    # Ray Serve LLM runs vLLM, but has no /tokenize. It reports the window in `metadata` (seen in
    # 2.60).
    Engine(
        "Ray Serve LLM",
        frozenset({"organization-owner"}),
        ("max_request_context_length",),
        lacks=frozenset({Capability.BOUND_ARGUMENTS}),
    ),
    # /api/v0/models: lmstudio.ai/docs/developer/rest/endpoints; a model that is not loaded reports
    # only its maximum window. Object tool_choice: lmstudio-bug-tracker#670.
    # The only documented field for a token limit is max_tokens:
    # lmstudio.ai/docs/developer/openai-compat/chat-completions
    Engine(
        "LM Studio",
        frozenset({"organization_owner"}),
        ("loaded_context_length",),
        "/api/v0/models",
        lacks=frozenset({Capability.NAMED_CHOICE, Capability.COMPLETION_LIMIT}),
    ),
)

# For each engine, the members of an assistant message that the engine may read as the message's
# reasoning. vLLM ignored `reasoning_content` at first, then renamed it to `reasoning` (vllm#27752),
# and now reads only the new name (vllm#38488). `dialects.ollama_chat` converts the member for
# Ollama.
ANY_MEMBERS = ("reasoning_content",)
# by the name of the engine; other engines are not known to accept reasoning
REASONING_MEMBERS = {
    "llama.cpp": ANY_MEMBERS,
    "Ollama": ANY_MEMBERS,
    "SGLang": ANY_MEMBERS,
    "vLLM": ("reasoning_content", "reasoning"),
    "Ray Serve LLM": ("reasoning_content", "reasoning"),
}

# Hosted engines report the window in their lists of models. According to their documentation,
# OpenRouter and Together use `context_length`, Groq uses `context_window`, and Mistral uses
# `max_context_length`.
ANY_ENGINE = Engine(
    "OpenAI-compatible",
    frozenset(),
    # `max_input_tokens` is from LiteLLM, whose owned_by is "openai" (seen in 1.109.1)
    ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens"),
)


def engine_of(entries: Sequence[JsonObject]) -> Engine:
    owners = {owner for entry in entries if isinstance(owner := entry.get("owned_by"), str)}
    return next((engine for engine in ENGINES if not engine.owners.isdisjoint(owners)), ANY_ENGINE)


def window_in(engine: Engine, entry: JsonObject) -> int | None:
    fields = {**as_object(entry.get("metadata")), **entry}
    return next(
        filter(None, (as_positive(fields.get(name)) for name in engine.window_fields)), None
    )
