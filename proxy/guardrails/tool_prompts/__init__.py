"""Describes tools in the prompt, for chat templates that do not describe them.

    system      # Tools <tools>{"type":"function","function":{"name":"get_time", ...}}</tools> ...
    assistant   <tool_call>{"name": "get_time", "arguments": {}}</tool_call>
    user        <tool_response>{"name": "get_time", "content": "12:00"}</tool_response>

`history` writes the tools, and the calls and results of a conversation, as text in a convention. A
convention is an entry of formats.toml (`fragments`), ReAct (`react`), or a JSON contract
(`json_contract`).
"""
