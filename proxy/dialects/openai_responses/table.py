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
)

_CARRY, _ENFORCE, _IGNORE = Handling.CARRIED, Handling.ENFORCED, Handling.IGNORED
_DROP = Handling.DROPPED
_ECHO = Field(_IGNORE, "repeated in the answer")
_NOTHING_RUNS_IT = refuse("Nothing here runs it. Offer a function that you run yourself.")

FIELDS = FieldTable(
    {
        "model": CARRIED,
        "input": Field(_CARRY, "a string is one message of the user"),
        "instructions": Field(_CARRY, "the first system message, of this request only"),
        "stream": ENFORCED,
        "temperature": CARRIED,
        "top_p": CARRIED,
        "tools": Field(_CARRY, "see tools"),
        "tool_choice": Field(_ENFORCE, "with `allowed_tools` all tools stay in the prompt"),
        "parallel_tool_calls": ENFORCED,
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
        "metadata": _ECHO,
        "user": _ECHO,
        "safety_identifier": _ECHO,
        "prompt_cache_retention": _ECHO,
        "prompt_cache_options": _ECHO,
        "service_tier": Field(_IGNORE, 'the answer says "default"'),
        "stream_options": Field(_IGNORE, "nothing is obfuscated"),
        "context_management": IGNORED,
        "client_metadata": IGNORED,
        "access_programs": IGNORED,
        "moderation": IGNORED,
        "image": IGNORED,
        "background_options": IGNORED,
    }
)

ITEMS = FieldTable(
    {
        "message": Field(_CARRY, "one of the system amid the input joins the message before it"),
        "function_call": CARRIED,
        "function_call_output": CARRIED,
        "custom_tool_call": Field(_CARRY, "as a call with one string, `input`"),
        "custom_tool_call_output": CARRIED,
        "tool_search_call": CARRIED,
        "tool_search_output": Field(_CARRY, "its tools are offered from here on"),
        "additional_tools": Field(_CARRY, "they are offered from here on"),
        "shell_call": CARRIED,
        "shell_call_output": CARRIED,
        "local_shell_call": CARRIED,
        "local_shell_call_output": CARRIED,
        "apply_patch_call": CARRIED,
        "apply_patch_call_output": CARRIED,
        "reasoning": Field(_CARRY, "thoughts that another model signed are left out"),
        "item_reference": Field(_ENFORCE, "from the store"),
        "configuration_update": IGNORED,
        "compaction": Field(_DROP, "nobody but its maker can read it"),
        "compaction_trigger": refuse(
            'Histories are shortened without being asked; `truncation: "auto"` says so.'
        ),
        "web_search_call": DROPPED,
        "file_search_call": Field(_DROP, "texts that were found are kept"),
        "code_interpreter_call": Field(_DROP, "the code and what it printed are kept"),
        "image_generation_call": DROPPED,
        "computer_call": DROPPED,
        "computer_call_output": DROPPED,
        "mcp_list_tools": DROPPED,
        "mcp_approval_request": DROPPED,
        "mcp_approval_response": DROPPED,
        "mcp_call": Field(_DROP, "its output is kept"),
        "program": DROPPED,
        "program_output": DROPPED,
    }
)

TOOLS = FieldTable(
    {
        "function": CARRIED,
        "namespace": Field(_CARRY, "each member as a function NAMESPACE__MEMBER"),
        "custom": Field(
            _CARRY, "as a function with one string; a regex is checked, lark is quoted"
        ),
        "tool_search": Field(_CARRY, 'as a function, with `execution: "client"`; else refused'),
        "shell": Field(_CARRY, "as a function, with a local environment; else refused"),
        "local_shell": Field(_CARRY, "as a function"),
        "apply_patch": Field(_CARRY, "as a function"),
        "web_search": Field(_DROP, "refused if no other tool is left"),
        "web_search_2025_08_26": Field(_DROP, "the same"),
        "web_search_preview": Field(_DROP, "the same"),
        "web_search_preview_2025_03_11": Field(_DROP, "the same"),
        "file_search": _NOTHING_RUNS_IT,
        "code_interpreter": _NOTHING_RUNS_IT,
        "image_generation": _NOTHING_RUNS_IT,
        "mcp": _NOTHING_RUNS_IT,
        "computer": _NOTHING_RUNS_IT,
        "computer_use_preview": _NOTHING_RUNS_IT,
        "programmatic_tool_calling": _NOTHING_RUNS_IT,
    }
)
