"""Explains why an engine read a part of a prompt again that it had read before.

An engine reports, after each reply, how many tokens of the prompt came from its cache. In a
conversation that only grows, these are nearly all tokens of the previous prompt. If there are
fewer, the first party that applies is the cause: the client changed the beginning of the prompt,
Temper moved its cut, or the engine no longer had the prompt.
"""

from collections.abc import Sequence

import msgspec

from proxy.context.prefix import Causer, PrefixBroken, PromptTrace, Reread
from proxy.conversation.replies import UsageReported
from proxy.dialects.lenient_json import as_count, cached_tokens, prompt_seconds
from proxy.facts import Compacted, Fact
from proxy.processes.process import ServerAddress

# The previous prompt ends with the beginning of an assistant message, which a template may write
# differently in a history. vLLM caches blocks of 16 tokens; every engine reads at least one token.
SLACK = 64  # tokens
_RELOADED = 300_000_000  # nanoseconds; Ollama reports some milliseconds for a loaded model


class SentPrompt(msgspec.Struct):
    """The last prompt of a conversation, the `number`th of its backend.

    `tokens` are those that the engine counted, 0 until then. `server` has read the prompt; a
    managed one has another `address` after each start.
    """

    trace: PromptTrace
    number: int
    tokens: int = 0
    server: str = ""
    address: ServerAddress | None = None


class WatchedPrompt(msgspec.Struct, frozen=True):
    """A prompt, the previous one of its conversation, and the first difference, if there is one."""

    now: SentPrompt
    before: SentPrompt | None
    broken: PrefixBroken | None


class PromptReading(msgspec.Struct, frozen=True):
    """The report of a `server` that has read a prompt, and the `facts` of that turn.

    `until_first_token` are the seconds that were measured, for an engine that reports none.
    """

    reported: UsageReported
    server: str
    facts: Sequence[Fact] = ()
    until_first_token: float | None = None


def is_continued(cached: int, before: int, now: int) -> bool:
    """Return whether the cached tokens are, up to `SLACK`, those that two prompts may share.

    `before` and `now` are the tokens of the previous prompt and of this one.
    """
    return cached >= min(before, now) - SLACK


def explain(watched: WatchedPrompt, before: SentPrompt, reading: PromptReading) -> Reread | None:
    """Return the tokens that were read again, and the cause; None if the change cost nothing."""
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
    """Compare the tokens from the cache with the first token that differs from the prompt before.

    If the engine has reused all tokens up to there, it is not the cause. If it has not, it had lost
    even more than the change explains.
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
    # a cut changes the first messages, but neither the system prompt nor the tools before them
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
