"""To Anthropic's API: a question as the body of `/v1/messages`, or of its counting of tokens.

Always streamed. The same question gives the same bytes, and the messages of a longer conversation
begin with those of a shorter one.
"""

from proxy.conversation import json
from proxy.conversation.requests import Question
from proxy.dialects.anthropic_messages.upstream.fields import Terms, body_fields
from proxy.dialects.anthropic_messages.upstream.messages import encode_history
from proxy.dialects.anthropic_messages.upstream.tools import encode_tool

# what shapes a prompt and not only the answer to it
_COUNTED = ("tool_choice", "thinking", "output_config")


def encode_question(question: Question, terms: Terms) -> bytes:
    """Write the request body; raises InvalidRequest for what the API cannot do."""
    limit = terms.limit(question.request.max_tokens)
    fields = {name: json.dump(value) for name, value in body_fields(question).items()}
    head = {"model": json.dump(terms.model), "max_tokens": json.dump(limit), "stream": b"true"}
    return json.join_object({**head, **fields, **_prompt(question)})


def encode_count(question: Question, terms: Terms) -> bytes:
    """Write the body that asks for the length of a prompt; raises InvalidRequest."""
    fields = body_fields(question)
    counted = {name: json.dump(fields[name]) for name in _COUNTED if name in fields}
    return json.join_object({"model": json.dump(terms.model), **counted, **_prompt(question)})


def _prompt(question: Question) -> dict[str, bytes]:
    history = encode_history(question.messages)
    prompt: dict[str, bytes] = {}
    if question.tools:
        prompt["tools"] = json.join_array([encode_tool(tool) for tool in question.tools])
    if history.system:
        prompt["system"] = json.join_array(history.system)
    return {**prompt, "messages": json.join_array(history.messages)}
