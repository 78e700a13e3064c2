"""The textual forms of tool calls, one module for each family of them.

Calls in JSON: `envelope` names the members that models give a call; in `marked_json` and
`named_json` a mark stands before it, in `plain_json` a code fence or nothing. Calls as tags:
`tagged` reads them, `xml_tags` says how each family spells them, `argument_pairs` reads keys and
values by turns. By the tool's own name: `tool_names`. As code or lines: `pythonic`.
Forms in which models can be asked for calls stand in `guardrails/formats`.
"""
