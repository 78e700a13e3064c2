"""Names of the Responses API that only the tests use, to compare them with OpenAI's SDK."""

from proxy.dialects.field_table import CARRIED, Field, FieldTable, Handling

PARTS = FieldTable(
    {
        "input_text": CARRIED,
        "output_text": CARRIED,
        "refusal": Field(Handling.CARRIED, "as text"),
        "input_image": Field(Handling.CARRIED, "as a `data:` URL only"),
        "input_file": Field(Handling.CARRIED, "if its `file_data` is text"),
        "input_audio": CARRIED,
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

_UNSENT: dict[str, str] = {
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
# Events that the answers in `test_encode` never have: those of hosted tools, audio, refusals and
# queues, and also `error`, because a failed answer ends with `response.failed`.
UNSENT_EVENTS: frozenset[str] = frozenset(
    f"response.{family}.{name}" for family, names in _UNSENT.items() for name in names.split()
) | {"error", "response.queued"}
