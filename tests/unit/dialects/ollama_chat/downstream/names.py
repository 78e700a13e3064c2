"""Names of Ollama's API that only the tests use, to compare them with ollama-python."""

from proxy.dialects.field_table import (
    CARRIED,
    DROPPED,
    ENFORCED,
    IGNORED,
    REFUSED,
    FieldTable,
    rows,
)

MESSAGES = FieldTable(
    rows(CARRIED, "role content thinking images tool_calls function name arguments"),
    rows(ENFORCED, "tool_name id tool_call_id"),
)

TOOLS = FieldTable(
    rows(CARRIED, "type function name description parameters"),
    rows(CARRIED, "defs items required properties enum"),
)

# fields of an embeddings request; only an Ollama backend receives all of them
VECTORS = FieldTable(
    rows(CARRIED, "model input prompt dimensions"), rows(DROPPED, "truncate options keep_alive")
)

# fields of requests that manage models; Temper forwards such requests to an Ollama backend
MANAGEMENT = FieldTable(
    rows(CARRIED, "model stream insecure quantize from_ files adapters template license system"),
    rows(CARRIED, "parameters messages source destination"),
)

# fields of ollama.com that a local Ollama does not have
HOSTED = FieldTable(rows(REFUSED, "web_search web_fetch system_one"))

# members of all kinds of answers; Temper sends those in CARRIED and none of IGNORED
ANSWERS = FieldTable(
    rows(CARRIED, "model created_at done done_reason message response thinking logprobs"),
    rows(CARRIED, "total_duration load_duration prompt_eval_count prompt_eval_duration"),
    rows(CARRIED, "eval_count eval_duration token logprob top_logprobs embeddings embedding"),
    rows(IGNORED, "context image completed total"),
)

# members of answers about models; Temper sends those in CARRIED if their value is known; those in
# IGNORED come only from an Ollama backend
MODELS = FieldTable(
    rows(CARRIED, "model name modified_at digest size details parent_model format family families"),
    rows(CARRIED, "parameter_size quantization_level template modelfile modelinfo parameters"),
    rows(CARRIED, "capabilities expires_at size_vram context_length models"),
    rows(IGNORED, "license status completed total"),
)
