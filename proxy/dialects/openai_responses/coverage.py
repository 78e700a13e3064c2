"""What happens to everything a request may hold, and which events an answer consists of.

One table for the code, the guide and the test that holds it against the types of OpenAI's SDK. What
stands in no table is ignored, as clients add fields in every release; tools are the exception.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class Treatment(Enum):
    """What happens to a part of a request."""

    CARRY = "carried"  # to the backend, in the language of chat completions
    ENFORCE = "enforced"  # by Temper itself
    IGNORE = "ignored"
    DROP = "dropped"  # and reported, as the model might have made use of it
    REFUSE = "refused"


class Row(NamedTuple):
    """A line of a table; the `note` of what is refused is its remedy."""

    treatment: Treatment
    note: str = ""


_CARRY, _ENFORCE, _IGNORE = Treatment.CARRY, Treatment.ENFORCE, Treatment.IGNORE
_DROP, _REFUSE = Treatment.DROP, Treatment.REFUSE
_ECHO = Row(_IGNORE, "repeated in the answer")
_NOTHING_RUNS_IT = Row(_REFUSE, "Nothing here runs it. Offer a function that you run yourself.")

FIELDS: Mapping[str, Row] = MappingProxyType(
    {
        "model": Row(_CARRY),
        "input": Row(_CARRY, "a string is one message of the user"),
        "instructions": Row(_CARRY, "the first system message, of this request only"),
        "stream": Row(_ENFORCE),
        "temperature": Row(_CARRY),
        "top_p": Row(_CARRY),
        "tools": Row(_CARRY, "see tools"),
        "tool_choice": Row(_ENFORCE, "with `allowed_tools` all tools stay in the prompt"),
        "parallel_tool_calls": Row(_ENFORCE),
        "max_output_tokens": Row(_CARRY, "as `max_tokens`"),
        "max_tool_calls": Row(_IGNORE, "it counts tools that a server runs; repeated"),
        "text": Row(_ENFORCE, "`format` is checked; `verbosity` is repeated only"),
        "reasoning": Row(
            _CARRY,
            "`effort`: [how much the model thinks](models.md#whether-a-model-thinks), `none` and "
            "`minimal` not at all; `summary` chooses the shape of thoughts",
        ),
        "include": Row(
            _ENFORCE, "`reasoning.encrypted_content` and `message.output_text.logprobs`"
        ),
        "top_logprobs": Row(_CARRY, "with `logprobs`"),
        "store": Row(_ENFORCE, "true unless it is false"),
        "previous_response_id": Row(_ENFORCE, "from the store"),
        "truncation": Row(
            _ENFORCE, '"disabled" switches the shortening of histories off, "auto" on'
        ),
        "prompt_cache_key": Row(_CARRY, "and keeps the conversation at one backend"),
        "temper": Row(_ENFORCE, "rules of order, as in chat completions"),
        "background": Row(_REFUSE, "Answers are made while you wait. Leave it out."),
        "conversation": Row(
            _REFUSE,
            "No conversations are kept. Use `previous_response_id`, or send all as `input`.",
        ),
        "prompt": Row(_REFUSE, "No prompts are kept. Send its text as `instructions` or `input`."),
        "metadata": _ECHO,
        "user": _ECHO,
        "safety_identifier": _ECHO,
        "prompt_cache_retention": _ECHO,
        "prompt_cache_options": _ECHO,
        "service_tier": Row(_IGNORE, 'the answer says "default"'),
        "stream_options": Row(_IGNORE, "nothing is obfuscated"),
        "context_management": Row(_IGNORE),
        "client_metadata": Row(_IGNORE),
        "access_programs": Row(_IGNORE),
        "moderation": Row(_IGNORE),
        "image": Row(_IGNORE),
        "background_options": Row(_IGNORE),
    }
)

ITEMS: Mapping[str, Row] = MappingProxyType(
    {
        "message": Row(_CARRY, "one of the system amid the input joins the message before it"),
        "function_call": Row(_CARRY),
        "function_call_output": Row(_CARRY),
        "custom_tool_call": Row(_CARRY, "as a call with one string, `input`"),
        "custom_tool_call_output": Row(_CARRY),
        "tool_search_call": Row(_CARRY),
        "tool_search_output": Row(_CARRY, "its tools are offered from here on"),
        "additional_tools": Row(_CARRY, "they are offered from here on"),
        "shell_call": Row(_CARRY),
        "shell_call_output": Row(_CARRY),
        "local_shell_call": Row(_CARRY),
        "local_shell_call_output": Row(_CARRY),
        "apply_patch_call": Row(_CARRY),
        "apply_patch_call_output": Row(_CARRY),
        "reasoning": Row(_CARRY, "thoughts that another model signed are left out"),
        "item_reference": Row(_ENFORCE, "from the store"),
        "configuration_update": Row(_IGNORE),
        "compaction": Row(_DROP, "nobody but its maker can read it"),
        "compaction_trigger": Row(
            _REFUSE, 'Histories are shortened without being asked; `truncation: "auto"` says so.'
        ),
        "web_search_call": Row(_DROP),
        "file_search_call": Row(_DROP, "texts that were found are kept"),
        "code_interpreter_call": Row(_DROP, "the code and what it printed are kept"),
        "image_generation_call": Row(_DROP),
        "computer_call": Row(_DROP),
        "computer_call_output": Row(_DROP),
        "mcp_list_tools": Row(_DROP),
        "mcp_approval_request": Row(_DROP),
        "mcp_approval_response": Row(_DROP),
        "mcp_call": Row(_DROP, "its output is kept"),
        "program": Row(_DROP),
        "program_output": Row(_DROP),
    }
)

PARTS: Mapping[str, Row] = MappingProxyType(
    {
        "input_text": Row(_CARRY),
        "output_text": Row(_CARRY),
        "refusal": Row(_CARRY, "as text"),
        "input_image": Row(_CARRY, "as a `data:` URL only"),
        "input_file": Row(_CARRY, "if its `file_data` is text"),
        "input_audio": Row(_CARRY),
    }
)

TOOLS: Mapping[str, Row] = MappingProxyType(
    {
        "function": Row(_CARRY),
        "namespace": Row(_CARRY, "each member as a function NAMESPACE__MEMBER"),
        "custom": Row(_CARRY, "as a function with one string; a regex is checked, lark is quoted"),
        "tool_search": Row(_CARRY, 'as a function, with `execution: "client"`; else refused'),
        "shell": Row(_CARRY, "as a function, with a local environment; else refused"),
        "local_shell": Row(_CARRY, "as a function"),
        "apply_patch": Row(_CARRY, "as a function"),
        "web_search": Row(_DROP, "refused if no other tool is left"),
        "web_search_2025_08_26": Row(_DROP, "the same"),
        "web_search_preview": Row(_DROP, "the same"),
        "web_search_preview_2025_03_11": Row(_DROP, "the same"),
        "file_search": _NOTHING_RUNS_IT,
        "code_interpreter": _NOTHING_RUNS_IT,
        "image_generation": _NOTHING_RUNS_IT,
        "mcp": _NOTHING_RUNS_IT,
        "computer": _NOTHING_RUNS_IT,
        "computer_use_preview": _NOTHING_RUNS_IT,
        "programmatic_tool_calling": _NOTHING_RUNS_IT,
    }
)

SENT_EVENTS: frozenset[str] = frozenset(
    f"response.{name}"
    for name in (
        "created",
        "in_progress",
        "completed",
        "incomplete",
        "failed",
        "output_item.added",
        "output_item.done",
        "content_part.added",
        "content_part.done",
        "output_text.delta",
        "output_text.done",
        "reasoning_text.delta",
        "reasoning_text.done",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
    )
)

_UNSENT: Mapping[str, str] = MappingProxyType(
    {
        "audio": "delta done transcript.delta transcript.done",
        "code_interpreter_call": "in_progress interpreting completed",
        "code_interpreter_call_code": "delta done",
        "compaction": "compacting",
        "file_search_call": "in_progress searching completed",
        "image_generation_call": "in_progress generating partial_image completed",
        "mcp_call": "in_progress completed failed",
        "mcp_call_arguments": "delta done",
        "mcp_list_tools": "in_progress completed failed",
        "output_text": "annotation.added",
        "refusal": "delta done",
        "shell_call_command": "added delta done",
        "shell_call_output_content": "delta done",
        "web_search_call": "in_progress searching completed",
    }
)
# What hosted tools, sounds, refusals and queues would tell of; a failure is `response.failed`.
UNSENT_EVENTS: frozenset[str] = frozenset(
    f"response.{family}.{name}" for family, names in _UNSENT.items() for name in names.split()
) | {"error", "response.queued"}


def refusal(table: Mapping[str, Row], name: str) -> str | None:
    """Return the remedy for what is refused; None for all else."""
    row = table.get(name)
    return row.note if row is not None and row.treatment is _REFUSE else None


def is_dropped(table: Mapping[str, Row], name: str) -> bool:
    """Return whether a part of a request is left out, and reported."""
    row = table.get(name)
    return row is not None and row.treatment is _DROP
