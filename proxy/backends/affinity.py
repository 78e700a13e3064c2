"""Chooses, by a hash and without state, the pool member that has a conversation's prompt cached.

Every turn of a conversation begins with the same system prompt, tools and first user message, so
their hash identifies the conversation. All replicas of Temper compute the same hash.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from proxy.conversation import roles
from proxy.conversation.requests import Request

PREFIX_HEADER = "x-temper-prefix"

_CLAUDE_SESSION = "x-claude-code-session-id"
# A subagent of Claude Code has a separate conversation, but sends the session id of its parent.
# This header distinguishes the two.
_CLAUDE_AGENT = "x-claude-code-agent-id"

# The session headers of clients (seen from opencode, Codex, Claude Code, Open WebUI).
SESSION_HEADERS = (
    "x-session-affinity", "x-session-id", "thread-id", "session-id", "session_id",
    "x-opencode-session", _CLAUDE_SESSION, "x-openwebui-chat-id", "x-conversation-id",
)  # fmt: skip

_PREFIX = re.compile(r"[0-9a-f]{16}")  # a hash as `_digest` writes it


def conversation_key(request: Request, headers: Mapping[str, str]) -> str:
    """Return the conversation's key: a hash, written as 16 hexadecimal digits.

    It is computed from the client's session id or, without an id, from the request's beginning.
    """
    prefix = headers.get(PREFIX_HEADER, "")
    if _PREFIX.fullmatch(prefix):  # computed by a Temper in front of this one
        return prefix
    return _digest(_session(request, headers) or _beginning(request))


def _session(request: Request, headers: Mapping[str, str]) -> list[bytes]:
    """Return the client's session id, [] if it sends none."""
    for name in SESSION_HEADERS:
        if session := headers.get(name):
            agent = headers.get(_CLAUDE_AGENT) if name == _CLAUDE_SESSION else None
            return [part.encode() for part in (session, agent) if part]
    if session_key := request.fields.get("prompt_cache_key"):
        return [session_key]
    return [request.session.encode("utf-8", "surrogatepass")] if request.session else []


def _beginning(request: Request) -> Iterator[bytes]:
    """Yield the tools and the text of the messages up to the first user message.

    The other members of a message are ignored, because clients move `cache_control` to another
    message in each turn.
    """
    yield request.fields.get("tools", b"")
    for message in request.messages:
        if message.role in roles.SYSTEM:
            yield message.text.encode("utf-8", "surrogatepass")
        elif message.role == "user":
            yield message.text.encode("utf-8", "surrogatepass")
            return


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(b"%d:" % len(part))  # so that ("ab", "c") and ("a", "bc") differ
        digest.update(part)
    return digest.hexdigest()


def rank(key: str, names: Sequence[str]) -> list[str]:
    """Order the names of pool members: the first member has the conversation's prompt cached.

    Rendezvous hashing: adding or removing a member moves only the conversations of that member.
    """
    return sorted(names, key=lambda name: _digest((key.encode(), name.encode())), reverse=True)
