"""How the larger model reads a conversation: as the small one, but for how tools are listed.

get_oven(oven_id: string, tags?: string[], place: {city: string}) - Show me an oven
"""

from temper_evals.tiny_model import chat_template

_TOOLS = r"""
{%- macro kind(schema) %}
  {%- if schema.enum %}{{- schema.enum | join('|') }}
  {%- elif schema.type == 'array' %}{{- kind(schema['items']) + '[]' }}
  {%- elif schema.type == 'object' and schema.properties %}{{- '{' + fields(schema) + '}' }}
  {%- elif schema.type is string %}{{- schema.type }}
  {%- else %}{{- 'any' }}
  {%- endif %}
{%- endmacro %}
{%- macro fields(schema) %}
  {%- for name, one in schema.properties.items() %}
    {{- name + ('' if name in (schema.required or []) else '?') + ': ' + kind(one) }}
    {%- if not loop.last %}{{- ', ' }}{%- endif %}
  {%- endfor %}
{%- endmacro %}
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- for tool in tools %}
    {{- tool.function.name + '(' + fields(tool.function.parameters) + ')' }}
    {{- ' - ' + (tool.function.description or '') + '\n' }}
  {%- endfor %}
  {{- '<|im_end|>\n' }}
{%- endif %}
"""
_MESSAGES = "{%- for message in messages %}"

NATIVE, MUTE = (
    _TOOLS.strip("\n") + "\n" + _MESSAGES + one.partition(_MESSAGES)[2]
    for one in (chat_template.NATIVE, chat_template.MUTE)
)
