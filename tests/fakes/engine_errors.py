"""Error bodies of engines as users reported them, with their parsed contents.

The errors were collected from issues and documentation (`proxy.backends.refusals` names them). An
error marked `(seen)` came from an engine that was run for this project.
"""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject


@dataclass(frozen=True)
class Overflow:
    """One wording of the error for a prompt that is too long; `body` is the whole response body."""

    engine: str
    message: str
    prompt: int | None
    window: int | None
    body: JsonObject
    status: int = 400


def _as_object(message: str, **others: int | str | None) -> JsonObject:
    return {"error": {"message": message, **others}}


def _flat(message: str, **others: int | str | None) -> JsonObject:
    return {"object": "error", "message": message, **others}


_VLLM_OLD = (
    "This model's maximum context length is 16384 tokens. However, you requested 19591 tokens "
    "(9591 in the messages, 10000 in the completion). Please reduce the length of the messages."
)
_VLLM_NEW = (
    "This model's maximum context length is 32768 tokens. However, you requested 512 output "
    "tokens and your prompt contains at least 32769 input tokens, for a total of at least 33281 "
    "tokens."
)
_VLLM_032 = (
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least "
    "2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the "
    "length of the input prompt. (parameter=input_tokens, value=2049)"
)
_VLLM_016 = (
    "You passed 1015 input tokens and requested 10 output tokens. However, the model's context "
    "length is only 1024 tokens, resulting in a maximum input length of 1014 tokens."
)
_VLLM_V1 = "The decoder prompt (length 9000) is longer than the maximum model length of 4096."
_SGLANG = "The input (61709 tokens) is longer than the model's context length (40960 tokens)."
_SGLANG_TOTAL = (
    "Requested token count exceeds the model's maximum context length of 65536 tokens. You "
    "requested a total of 67298 tokens: 50914 tokens from the input messages and 16384 tokens for "
    "the completion."
)
_LM_STUDIO = (
    "Trying to keep the first 14538 tokens when context the overflows. However, the model is "
    "loaded with context length of only 2048 tokens, which is not enough."
)
_LM_STUDIO_04 = "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"
_LM_STUDIO_MLX = (
    "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 9000 >= n_ctx: 8192). Try to load the model with a larger context length."
)
_OLLAMA = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)
_OLLAMA_OLD = "the input length exceeds the context length"
_LLAMAFILE = "the request exceeds the available context size. try increasing the context size"
_LLAMA_CPP_PYTHON = "Requested tokens (3000) exceed context window of 2048"
_MISTRAL = (
    "Prompt contains 170397 tokens and 0 draft tokens, too large for model with 131072 maximum "
    "context length"
)
_CEREBRAS = (
    "Please reduce the length of the messages or completion. Current length is 9018 while limit "
    "is 8192"
)
_OPENROUTER = (
    "This endpoint's maximum context length is 262144 tokens. However, you requested about "
    "300012 tokens (299000 of text input, 1012 in the output)."
)
_WITH_LIMIT = (
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
    "decrease input length or `max_tokens` and try again"
)
_TGI = "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512"

OVERFLOWS = (
    Overflow("vllm-0.9", _VLLM_OLD, 9591, 16384, _flat(_VLLM_OLD, type="BadRequestError")),
    Overflow(
        "vllm-0.24", _VLLM_NEW, None, 32768, _as_object(_VLLM_NEW, param="input_tokens", code=400)
    ),
    Overflow(
        "vllm-0.32 (seen)",
        _VLLM_032,
        None,
        2048,
        _as_object(_VLLM_032, type="BadRequestError", param="input_tokens", code=400),
    ),
    Overflow("vllm-0.16", _VLLM_016, 1015, 1024, _as_object(_VLLM_016, type="BadRequestError")),
    Overflow("vllm-v1", _VLLM_V1, 9000, 4096, _as_object(_VLLM_V1, code=400)),
    Overflow("sglang", _SGLANG, 61709, 40960, _flat(_SGLANG, type="BadRequestError", code=400)),
    Overflow("sglang-total", _SGLANG_TOTAL, 50914, 65536, _flat(_SGLANG_TOTAL, code=400)),
    Overflow("lm-studio-0.3", _LM_STUDIO, 14538, 2048, {"error": _LM_STUDIO}),
    Overflow("lm-studio-0.4", _LM_STUDIO_04, 15028, 7424, {"error": _LM_STUDIO_04}),
    Overflow("lm-studio-mlx", _LM_STUDIO_MLX, 9000, 8192, {"error": _LM_STUDIO_MLX}),
    Overflow("ollama", _OLLAMA, None, None, {"error": _OLLAMA}),
    Overflow("ollama-old", _OLLAMA_OLD, None, None, {"error": _OLLAMA_OLD}),
    Overflow("llamafile", _LLAMAFILE, None, None, _as_object(_LLAMAFILE, type="server_error"), 500),
    Overflow("llama-cpp-python", _LLAMA_CPP_PYTHON, 3000, 2048, {"detail": _LLAMA_CPP_PYTHON}, 500),
    Overflow("mistral", _MISTRAL, 170397, 131072, _flat(_MISTRAL, code="3051")),
    Overflow("cerebras", _CEREBRAS, 9018, 8192, {"message": _CEREBRAS, "type": "x"}),
    Overflow("openrouter", _OPENROUTER, 299000, 262144, _as_object(_OPENROUTER, code=400)),
    Overflow("tgi", _TGI, 9000, 8193, {"error": _TGI, "error_type": "validation"}, 422),
    Overflow(
        "anthropic",
        "prompt is too long: 208310 tokens > 200000 maximum",
        208310,
        200000,
        _as_object("prompt is too long: 208310 tokens > 200000 maximum"),
    ),
    Overflow("anthropic with max_tokens", _WITH_LIMIT, 188240, 200000, _as_object(_WITH_LIMIT)),
    Overflow(
        "gemini",
        "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).",
        1048600,
        1048576,
        _as_object(
            "The input token count (1048600) exceeds the maximum number of tokens allowed "
            "(1048576).",
            status="INVALID_ARGUMENT",
        ),
    ),
)
