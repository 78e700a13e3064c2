"""Models and embeddings in the formats of Ollama's API.

    /api/tags    {"models": [{"name": "qwen3:latest", "size": 4683075271, "digest": "...",
                              "details": {"format": "gguf", "parameter_size": "8.2B"}}]}
    /api/embed   {"model": "e", "embeddings": [[0.1, 0.2]], "prompt_eval_count": 3}

Every model name has a tag, as in Ollama's own lists.
"""

import hashlib
from collections.abc import Iterable

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.dialect import ListedModel
from proxy.dialects.lenient_json import (
    as_count,
    as_list,
    as_object,
    as_positive,
    as_unix_time,
    read_usage,
)
from proxy.dialects.ollama_chat.downstream.encode import moment
from proxy.dialects.ollama_chat.fields import with_tag
from proxy.dialects.raw_json import nodes_in, read_object
from proxy.errors import InvalidRequest

# members that Temper adds to an entry in a list of models
_OWN = frozenset(
    ("status", "aliases", "capabilities", "context_window", "meta", "engine", "tried", "tuned")
)
_FOR_EVER = 100 * 365 * 86_400.0  # seconds; Temper does not know when a model will be unloaded
_BILLION, _MILLION = 1e9, 1e6
_COPIED = ("model", "dimensions")


def list_models(models: Iterable[ListedModel]) -> JsonObject:
    """Write the answer to `/api/tags`; entries of an Ollama backend stay unchanged."""
    return {"models": [_entry(model) for model in models]}


def list_running(models: Iterable[ListedModel], now: float) -> JsonObject:
    """Write the answer to `/api/ps` for loaded models; `now` is a Unix time in seconds."""
    running: list[JsonValue] = []
    for model in models:
        entry = _entry(model)
        entry |= {"expires_at": moment(now + _FOR_EVER), "size_vram": entry["size"]}
        if model.window is not None:
            entry["context_length"] = model.window
        running.append(entry)
    return {"models": running}


def _entry(model: ListedModel) -> JsonObject:
    name, details = with_tag(model.id), model.details
    if "digest" in details:
        entry = {key: value for key, value in details.items() if key not in _OWN}
        return {**entry, "name": name, "model": name}
    return {
        "name": name,
        "model": name,
        "modified_at": moment(as_unix_time(details.get("created"))),
        "size": as_count(as_object(details.get("meta")).get("size")),
        "digest": hashlib.sha256(model.id.encode()).hexdigest(),  # clients only compare this value
        "details": _details(model, ""),
    }


def _details(model: ListedModel, architecture: str) -> JsonObject:
    parameters = as_count(as_object(model.details.get("meta")).get("n_params"))
    unit, size = ("B", _BILLION) if parameters >= _BILLION else ("M", _MILLION)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture] if architecture else [],
        "parameter_size": f"{parameters / size:.1f}{unit}" if parameters else "",
        "quantization_level": "",
    }


def show_model(
    model: ListedModel, architecture: str, template: str, capabilities: Iterable[str]
) -> JsonObject:
    """Write the answer to `/api/show`; clients read from it how long their prompts may be."""
    kind = architecture or "unknown"
    model_info: JsonObject = {"general.architecture": kind, "general.basename": model.id}
    parameters = ""
    if model.window is not None:
        model_info[f"{kind}.context_length"] = model.window
        parameters = f"{'num_ctx':30} {model.window}"
    count = as_positive(as_object(model.details.get("meta")).get("n_params"))
    if count is not None:
        model_info["general.parameter_count"] = count
    return {
        "modelfile": f"# served by Temper\nFROM {model.id}\n",
        "parameters": parameters,
        "template": template,
        "details": _details(model, architecture),
        "model_info": model_info,
        "capabilities": ["completion", *capabilities],
        "modified_at": moment(as_unix_time(model.details.get("created"))),
    }


def read_name(body: bytes) -> str:
    """Return the member `model`, or `name` from older clients; "" if both are missing."""
    nodes = nodes_in(read_object(body), body)
    return nodes.word("model") or nodes.word("name")


def to_embeddings_request(body: bytes) -> dict[str, bytes]:
    """Convert a request to `/api/embed` or `/api/embeddings` for `/v1/embeddings`."""
    nodes = nodes_in(read_object(body), body)
    text = nodes.get("input") or nodes.get("prompt")
    if text is None:
        raise InvalidRequest("Expected a text, or an array of texts.", "input")
    fields = {name: nodes[name].source for name in _COPIED if name in nodes}
    return {**fields, "input": text.source, "encoding_format": b'"float"'}


def write_vectors(answer: bytes, model: str, *, is_old: bool) -> bytes:
    """Convert an answer of `/v1/embeddings`.

    With `is_old`, the answer is for `/api/embeddings`, which has only one vector. Raises ValueError
    for a document that is not such an answer.
    """
    details = as_object(json.parse(answer))
    entries = [as_object(entry) for entry in as_list(details.get("data"))]
    ordered = sorted(entries, key=lambda entry: as_count(entry.get("index")))
    vectors: list[JsonValue] = [as_list(entry.get("embedding")) for entry in ordered]
    if not vectors:
        raise ValueError("the response has no embedding")
    if is_old:
        return json.dump({"embedding": vectors[0]})
    return json.dump(
        {
            "model": model,
            "embeddings": vectors,
            "prompt_eval_count": read_usage(as_object(details.get("usage"))).prompt,
        }
    )
