"""To Ollama's chat language: a question as the body of `/api/chat`.

Always streamed, never cut: with `truncate` or `shift` Ollama would drop the oldest messages or half
of the prompt in silence. Both, and the window, are the same in every question, because a change of
either makes Ollama load the model again.
"""

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolUse
from proxy.dialects.ollama_chat.fields import Terms, body_fields
from proxy.dialects.ollama_chat.messages import encode_messages
from proxy.dialects.ollama_chat.tools import encode_tool


def encode_question(question: Question, terms: Terms) -> bytes:
    """Write the request body; raises InvalidRequest for what Ollama cannot do."""
    body: JsonObject = {"model": terms.model, "messages": encode_messages(question.messages)}
    # Ollama cannot be told to leave calls alone: it would parse one out of the text although the
    # client forbade it. So the model is not told of the tools, which costs the cached prompt.
    if question.tools and question.tool_choice is not ToolUse.NONE:
        body["tools"] = [encode_tool(tool) for tool in question.tools]
    body |= {"stream": True, "truncate": False, "shift": False}
    return json.dump(body | body_fields(question, terms))
