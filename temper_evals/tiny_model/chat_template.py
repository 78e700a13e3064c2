"""How the tiny model reads a conversation: a chat template of its own, native and mute.

    <|im_start|>system   a line for each tool: get_time(city: string)
    <|im_start|>user / assistant ...   calls as <tool_call>, results as <tool_response> of the user

The mute one writes no calls, so that a server that reads syntaxes off templates learns none.
"""

_HEAD = r"""
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- for tool in tools %}
    {{- tool.function.name + '(' }}
    {%- for name, schema in tool.function.parameters.properties.items() %}
      {{- name + ': ' }}
      {%- if schema.type is string %}{{- schema.type }}{%- else %}{{- 'any' }}{%- endif %}
      {%- if not loop.last %}{{- ', ' }}{%- endif %}
    {%- endfor %}
    {{- ')\n' }}
  {%- endfor %}
  {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
  {%- set content = message.content if message.content is string else '' %}
  {%- if message.role == 'user' or message.role == 'system' %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant\n' + content }}"""
_CALLS = r"""
    {%- for call in message.tool_calls or [] %}
      {%- if content or not loop.first %}{{- '\n' }}{% endif %}
      {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
      {{- call.function.arguments | tojson }}
      {{- '}\n</tool_call>' }}
    {%- endfor %}"""
_TAIL = r"""
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {{- '<|im_start|>user\n<tool_response>\n' + content + '\n</tool_response><|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

NATIVE = (_HEAD + _CALLS + _TAIL).lstrip("\n")
MUTE = (_HEAD + _TAIL).lstrip("\n")
