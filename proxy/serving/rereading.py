"""Explains why an engine read a part of a prompt again instead of using its cache.

After each reply, an engine reports how many tokens of the prompt came from its cache. In a growing
conversation, these are nearly all tokens of the previous prompt. If there are fewer, the cause is
the first entry of this list that applies: the client changed the beginning of the prompt; Temper
moved the position of its cut; the engine had dropped the prompt from its cache.
"""

from collections.abc import Sequence

import msgspec

from proxy.context.prefix import Causer, PrefixBroken, PromptTrace, Reread
from proxy.conversation.replies import UsageReported
from proxy.dialects.lenient_json import as_count, cached_tokens, prompt_seconds
from proxy.facts import Compacted, Fact
from proxy.processes.process import ServerAddress

# This many tokens may be read again in normal operation. The previous prompt ended with the start
# of an assistant message, which a template may write differently in a history. vLLM caches only
# whole blocks of 16 tokens. Every engine reads at least one token.
SLACK = 64  # tokens
_RELOADED = 300_000_000  # nanoseconds; Ollama reports some milliseconds for a loaded model


class SentPrompt(msgspec.Struct):
    """The last prompt of a conversation.

    `number` is the position among all prompts sent to the backend. `tokens` is the count that the
    engine reported, 0 before its reply. `server` is the server that read the prompt. `address` is
    the address of that server; a managed server gets a new address at each start.
    """

    trace: PromptTrace
    number: int
    tokens: int = 0
    server: str = ""
    address: ServerAddress | None = None


class WatchedPrompt(msgspec.Struct, frozen=True):
    """A prompt, the previous prompt of its conversation, and the first difference between them."""

    now: SentPrompt
    before: SentPrompt | None
    broken: PrefixBroken | None


class PromptReading(msgspec.Struct, frozen=True):
    """The report of a `server` that has read a prompt, and the `facts` of that turn.

    `until_first_token` is the time in seconds that Temper measured. It is used if the engine does
    not report how long it read.
    """

    reported: UsageReported
    server: str
    facts: Sequence[Fact] = ()
    until_first_token: float | None = None


def is_continued(cached: int, before: int, now: int) -> bool:
    """Return whether the engine reused the previous prompt, apart from up to `SLACK` tokens.

    `before` and `now` are the sizes of the previous and the current prompt in tokens.
    """
    return cached >= min(before, now) - SLACK


def explain(watched: WatchedPrompt, before: SentPrompt, reading: PromptReading) -> Reread | None:
    """Return the tokens that were read again, and the cause; None if no token was read again."""
    now, reported = watched.now, reading.reported
    cached = cached_tokens(reported.usage)
    cuts = (fact for fact in reading.facts if isinstance(fact, Compacted) and fact.is_new)
    cut = next((cut for cut in cuts if cut.is_shortened), None)
    if cached is not None and cached >= min(before.tokens, now.tokens) - 1:
        return None
    causer, reason = _cause(watched.broken, cut) or _engine_cause(before, now, reported)
    seconds = prompt_seconds(reported.timings)
    is_measured = seconds is None and reading.until_first_token is not None
    seconds = reading.until_first_token if is_measured else seconds
    return Reread(now.tokens, cached, seconds, causer, reason, is_measured)


def refine(reread: Reread, offset: int) -> Reread:
    """Correct the cause with the exact `offset` of the first token that differs.

    If the engine reused all tokens before the offset, the only cause is the changed prompt. If it
    reused fewer tokens, the engine had also dropped a part of its cache.
    """
    if reread.cached is None:
        return reread
    lost = min(offset, reread.prompt - 1) - reread.cached
    if reread.causer == "engine":
        if lost > SLACK:
            return reread
        reason = "the chat template writes an earlier message differently than before"
        return msgspec.structs.replace(reread, causer="template", reason=reason)
    if lost <= SLACK:
        return reread
    reason = f"{reread.reason}; the engine had also lost the {lost:,} tokens before that"
    return msgspec.structs.replace(reread, reason=reason)


def _cause(broken: PrefixBroken | None, cut: Compacted | None) -> tuple[Causer, str] | None:
    # Place 0 or None means that the system prompt or the tools changed. A cut changes neither.
    if broken is not None and (cut is None or broken.place in (None, 0)):
        return "client", broken.reason
    if cut is not None:
        return "temper", f"Temper shortened the conversation (cut number {cut.epoch})"
    return None


def _engine_cause(
    before: SentPrompt, now: SentPrompt, reported: UsageReported
) -> tuple[Causer, str]:
    if before.server != now.server:
        return "engine", f"the request went to another server ({now.server})"
    if before.address != now.address:
        return "engine", "the model's server was started again since the previous request"
    if as_count((reported.timings or {}).get("load_duration")) > _RELOADED:
        return "engine", "the engine had unloaded the model and loaded it again"
    if others := now.number - before.number - 1:
        requests = "another request" if others == 1 else f"{others} other requests"
        return "engine", f"{requests} used the model's cache since the previous request"
    if cached_tokens(reported.usage):
        return (
            "engine",
            "the chat template writes an earlier message differently, or the engine kept only "
            "a part of the prompt",
        )
    return "engine", "the engine no longer had the prompt: it was restarted, or is used directly"
