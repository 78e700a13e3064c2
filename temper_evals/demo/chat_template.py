"""Chat templates for the handwritten model: ChatML with tools in Hermes form."""

# A conversation is rendered as
#   <|im_start|>system  the system text, then the tools
#   <|im_start|>user / assistant ...  calls as <tool_call>, results as <tool_response> from the user
# The thinking variant writes the reasoning before a message, and an empty block of reasoning if
# thinking is off. llama-server recognizes a thinking model by these two properties.

_SYSTEM = r"""
{%- set ns = namespace(system='') %}
{%- if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}{% endif %}
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- if ns.system %}{{- ns.system + '\n\n' }}{% endif %}
  {{- '# Functions\n\nThese functions can be called:\n<tools>' }}
  {%- for tool in tools %}{{- '\n' + (tool | tojson) }}{% endfor %}
  {{- '\n</tools>\n\nTo call one, write its name and arguments as JSON:\n<tool_call>\n' }}
  {{- '{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- elif ns.system %}
  {{- '<|im_start|>system\n' + ns.system + '<|im_end|>\n' }}
{%- endif %}"""

_MESSAGES = r"""
{%- for message in messages %}
  {%- set content = message.content if message.content is string else '' %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant\n' }}
    REASONING{{- content }}
    {%- for call in message.tool_calls or [] %}
      {%- if content or not loop.first %}{{- '\n' }}{% endif %}
      {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
      {{- call.function.arguments | tojson }}
      {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
      {{- '<|im_start|>user' }}
    {%- endif %}
    {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
      {{- '<|im_end|>\n' }}
    {%- endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' }}
  NO_THOUGHTS
{%- endif %}"""

_REASONING = r"""{%- if message.reasoning_content %}
      {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
    {%- endif %}
    """

_NO_THOUGHTS = r"""{%- if enable_thinking is defined and enable_thinking is false %}
    {{- '<think>\n\n</think>\n\n' }}
  {%- endif %}"""


def chat_template(*, thinking: bool = False) -> str:
    template = _SYSTEM + _MESSAGES
    template = template.replace("REASONING", _REASONING if thinking else "")
    return template.replace("NO_THOUGHTS", _NO_THOUGHTS if thinking else "").lstrip("\n")
