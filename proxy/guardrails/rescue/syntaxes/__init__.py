"""The textual forms of tool calls, one module for each family of them.

Calls in JSON: `envelope` names the members that models give a call; `hermes`, `marked_json`,
`mistral`, `apertus`, `named_json` and `tools_tag` have a mark before it, `fenced_json` a code
fence, `json_contract` an agreement, `bare_json` nothing. Calls as tags: `tagged` reads them,
`qwen_coder`, `invoke`, `function_tags`, `nested_tags`, `named_tags`, `kimi_k3`, `argument_pairs`
and `suffixed_pairs` say how theirs look. By the tool's own name: `tool_names`, `tool_marks`,
`inline_calls`, `functionary`, `gemma`. As code or lines: `pythonic`, `react`, `line_blocks`.
"""
