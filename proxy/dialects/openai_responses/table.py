"""What happens to everything a request may hold.

One table for the code, the guide and the test that holds it against the types of OpenAI's SDK. What
stands in no table is ignored, as clients add fields in every release; tools are the exception.
"""

from proxy.dialects.field_table import (
    CARRIED,
    DROPPED,
    ENFORCED,
    IGNORED,
    Field,
    FieldTable,
    Handling,
    refuse,
    rows,
)

_CARRY, _ENFORCE, _IGNORE = Handling.CARRIED, Handling.ENFORCED, Handling.IGNORED
_DROP = Handling.DROPPED
_NOTHING_RUNS_IT = refuse("Nothing here runs it. Offer a function that you run yourself.")

FIELDS = FieldTable(
    rows(CARRIED, "model temperature top_p"),
    rows(ENFORCED, "stream parallel_tool_calls"),
    {
        "input": Field(_CARRY, "a string is one message of the user"),
        "instructions": Field(_CARRY, "the first system message, of this request only"),
        "tools": Field(_CARRY, "see tools"),
        "tool_choice": Field(_ENFORCE, "with `allowed_tools` all tools stay in the prompt"),
        "max_output_tokens": Field(_CARRY, "as `max_tokens`"),
        "max_tool_calls": Field(_IGNORE, "it counts tools that a server runs; repeated"),
        "text": Field(_ENFORCE, "`format` is checked; `verbosity` is repeated only"),
        "reasoning": Field(
            _CARRY,
            "`effort`: [how much the model thinks](models.md#whether-a-model-thinks), `none` and "
            "`minimal` not at all; `summary` chooses the shape of thoughts",
        ),
        "include": Field(
            _ENFORCE, "`reasoning.encrypted_content` and `message.output_text.logprobs`"
        ),
        "top_logprobs": Field(_CARRY, "with `logprobs`"),
        "store": Field(_ENFORCE, "true unless it is false"),
        "previous_response_id": Field(_ENFORCE, "from the store"),
        "truncation": Field(
            _ENFORCE, '"disabled" switches the shortening of histories off, "auto" on'
        ),
        "prompt_cache_key": Field(_CARRY, "and keeps the conversation at one backend"),
        "temper": Field(_ENFORCE, "rules of order, as in chat completions"),
        "background": refuse("Answers are made while you wait. Leave it out."),
        "conversation": refuse(
            "No conversations are kept. Use `previous_response_id`, or send all as `input`.",
        ),
        "prompt": refuse("No prompts are kept. Send its text as `instructions` or `input`."),
        "service_tier": Field(_IGNORE, 'the answer says "default"'),
        "stream_options": Field(_IGNORE, "nothing is obfuscated"),
    },
    rows(
        Field(_IGNORE, "repeated in the answer"),
        "metadata user safety_identifier prompt_cache_retention prompt_cache_options",
    ),
    rows(IGNORED, "context_management client_metadata access_programs moderation image"),
    rows(IGNORED, "background_options"),
)

ITEMS = FieldTable(
    rows(CARRIED, "function_call function_call_output custom_tool_call_output tool_search_call"),
    rows(CARRIED, "shell_call shell_call_output local_shell_call local_shell_call_output"),
    rows(CARRIED, "apply_patch_call apply_patch_call_output"),
    {
        "message": Field(_CARRY, "one of the system amid the input joins the message before it"),
        "custom_tool_call": Field(_CARRY, "as a call with one string, `input`"),
        "tool_search_output": Field(_CARRY, "its tools are offered from here on"),
        "additional_tools": Field(_CARRY, "they are offered from here on"),
        "reasoning": Field(_CARRY, "thoughts that another model signed are left out"),
        "item_reference": Field(_ENFORCE, "from the store"),
        "compaction": Field(_DROP, "nobody but its maker can read it"),
        "compaction_trigger": refuse(
            'Histories are shortened without being asked; `truncation: "auto"` says so.'
        ),
        "file_search_call": Field(_DROP, "texts that were found are kept"),
        "code_interpreter_call": Field(_DROP, "the code and what it printed are kept"),
        "mcp_call": Field(_DROP, "its output is kept"),
    },
    rows(IGNORED, "configuration_update"),
    rows(DROPPED, "web_search_call image_generation_call computer_call computer_call_output"),
    rows(DROPPED, "mcp_list_tools mcp_approval_request mcp_approval_response"),
    rows(DROPPED, "program program_output"),
)

TOOLS = FieldTable(
    rows(CARRIED, "function"),
    {
        "namespace": Field(_CARRY, "each member as a function NAMESPACE__MEMBER"),
        "custom": Field(
            _CARRY, "as a function with one string; a regex is checked, lark is quoted"
        ),
        "tool_search": Field(_CARRY, 'as a function, with `execution: "client"`; else refused'),
        "shell": Field(_CARRY, "as a function, with a local environment; else refused"),
        "local_shell": Field(_CARRY, "as a function"),
        "apply_patch": Field(_CARRY, "as a function"),
        "web_search": Field(_DROP, "refused if no other tool is left"),
    },
    rows(
        Field(_DROP, "the same"),
        "web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11",
    ),
    rows(_NOTHING_RUNS_IT, "file_search code_interpreter image_generation mcp computer"),
    rows(_NOTHING_RUNS_IT, "computer_use_preview programmatic_tool_calling"),
)
