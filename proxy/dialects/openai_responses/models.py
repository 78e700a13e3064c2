"""The list of models as Codex reads it (`GET /v1/models?client_version=0.155.1`).

    {"models": [{"slug": "qwen3", "display_name": "qwen3", "context_window": 32768, ...}]}

Codex rejects the whole list if an entry lacks one of these members. It then assumes a window of
272,000 tokens. The list has no instructions for the models, so Codex uses its own instructions.
Older versions of Codex require instructions in the list. They reject this list, and also use their
own instructions.
"""

from collections.abc import Sequence

from proxy.conversation.json import JsonValue
from proxy.dialects.dialect import ListedModel
from proxy.dialects.lenient_json import as_list


def codex_models(models: Sequence[ListedModel]) -> list[JsonValue]:
    return [_entry(model, priority) for priority, model in enumerate(models)]


def _entry(model: ListedModel, priority: int) -> JsonValue:
    has_vision = "vision" in as_list(model.details.get("capabilities"))
    return {
        "slug": model.id,
        "display_name": model.id,
        "description": None,
        "default_reasoning_level": None,
        "supported_reasoning_levels": [],
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "upgrade": None,
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "context_window": model.window,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if has_vision else ["text"],
    }
