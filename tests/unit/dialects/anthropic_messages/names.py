"""Names of the Messages API that only the tests use, to compare them with Anthropic's SDK."""

from proxy.dialects.field_table import CARRIED, ENFORCED, IGNORED, FieldTable, rows

TOOL_MEMBERS = FieldTable(
    rows(CARRIED, "name description input_schema strict"),
    rows(ENFORCED, "type defer_loading"),
    rows(IGNORED, "cache_control input_examples allowed_callers eager_input_streaming"),
)

CHOICES = FieldTable(rows(ENFORCED, "auto any tool none"))

# types of events and deltas in a stream; Temper sends those in CARRIED and none of IGNORED
EVENTS = FieldTable(
    rows(CARRIED, "message_start content_block_start content_block_delta content_block_stop"),
    rows(CARRIED, "message_delta message_stop text_delta thinking_delta signature_delta"),
    rows(CARRIED, "input_json_delta"),
    rows(IGNORED, "citations_delta compaction_delta"),
)

STOP_REASONS = FieldTable(
    rows(CARRIED, "end_turn tool_use max_tokens refusal"),
    rows(IGNORED, "stop_sequence model_context_window_exceeded pause_turn compaction"),
)
