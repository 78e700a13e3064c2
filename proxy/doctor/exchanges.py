"""Checks that generate replies: forced call, prompt cache, overflow, disconnect and others."""

import asyncio
import re
import time
from urllib.parse import quote

import httpx

from proxy.backends.capabilities import Capability
from proxy.backends.probing import PROBES, documents_in, write_probe
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import member
from proxy.doctor.target import CHAT, COUNT, Finding, Target, count, fail, ok, skip, warn

REPORT: JsonObject = {
    "name": "report",
    "description": "Report how you feel.",
    "parameters": {
        "type": "object",
        "properties": {"feeling": {"type": "string", "enum": ["fine", "ill"]}},
        "required": ["feeling"],
        "additionalProperties": False,
    },
}
# the tool of the test requests, and the `tool_choice` that demands a call of this tool
_TOOL: JsonObject = {"type": "function", "function": REPORT}
_FORCED: JsonObject = {"type": "function", "function": {"name": "report"}}
_LINES = 60  # lines of a long prompt; together they have a few hundred tokens
_MOST_TOKENS = 65536  # filling a larger window takes too long
# the longest time until a slot is free; llama-server needs 3 to 190 ms (decision 0004)
_SLOW_SECONDS = 1.5
_POLL_SECONDS = 0.05  # between two queries of the running requests
_TOLERANCE = 0.02  # the largest error of a token count, as a share of the prompt
_LEAST_TOKENS = 8  # a shorter reply would mostly measure the connection
# engine -> the option with which it reports cached tokens
_CACHE_OPTIONS = {"vLLM": ": start it with --enable-prompt-tokens-details"}
# vLLM has no /slots, but counts its requests in /metrics
_RUNNING = re.compile(rb"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([\d.]+)", re.MULTILINE)
# headers for measurements of the engine, which a retry or a shortened prompt would falsify
_UNCHANGED = {"x-temper-guardrails": "off", "x-temper-compaction": "off"}


async def check_forced_call(target: Target) -> Finding:
    answer = await target.post_to_temper(
        {
            "messages": [_user_message("Call the tool `report` and say that you are fine.")],
            "tools": [_TOOL],
            "tool_choice": _FORCED,
            "max_tokens": 512,
        }
    )
    call = member(answer.document, "choices", 0, "message", "tool_calls", 0, "function")
    repairs = answer.headers.get("x-temper-repairs", "")
    attempts = answer.headers.get("x-temper-attempts", "1")
    if answer.status >= 400:
        return fail(f"a forced call failed: {answer.error_message}", "check the server's log")
    if not isinstance(call, dict):
        return fail(
            f"no valid call after {attempts} attempts",
            "check with 'temper models' that the model supports tools",
            calls="never",
        )
    is_parsed = "rescued" not in repairs
    if attempts != "1":
        return warn(
            f"a forced call needed {attempts} attempts",
            "check the profile with 'temper models'; a larger quantization may help",
            calls=f"attempt {attempts}",
            engine_parses_calls=is_parsed,
        )
    result = f"at once ({repairs})" if repairs else "at once"
    detail = f" ({repairs})" if repairs else ""
    return ok(
        f"a forced call was valid at the first attempt{detail}",
        calls=result,
        engine_parses_calls=is_parsed,
    )


async def check_prompt_cache(target: Target) -> Finding:
    """Send a prompt twice; the second time, most tokens should come from the prompt cache."""
    body = _long_request("repeated")
    first = await target.post_to_temper(body)
    second = await target.post_to_temper(body)
    total = count(second.document, "usage", "prompt_tokens")
    cached = count(second.document, "usage", "prompt_tokens_details", "cached_tokens")
    if first.status >= 400 or total is None:
        return skip("a request with a long prompt failed")
    if cached is None:
        option = _CACHE_OPTIONS.get(target.known.engine, "")
        return skip(f"this server does not report cached tokens{option}")
    summary = f"{cached} of {total} tokens of a repeated prompt were cached"
    if cached * 2 < total:
        return warn(
            summary,
            "each turn of an agent is processed from the start; remove --no-cache-prompt, and for "
            "models with a sliding window check --cache-ram and --swa-full",
            caches_prompts=False,
        )
    return ok(summary, caches_prompts=True)


async def check_token_count(target: Target) -> Finding:
    """Compare the token count of a prompt with the usage in the response."""
    # the prompt of `check_prompt_cache` is cached already, which saves time on slow machines
    body = _long_request("repeated")
    count_response = await target.post_to_temper(body, path=COUNT, headers=_UNCHANGED)
    answer = await target.post_to_temper(body, headers=_UNCHANGED)
    counted = count(count_response.document, "input_tokens")
    reported = count(answer.document, "usage", "prompt_tokens")
    if counted is None or reported is None:
        return skip("this server does not report the number of prompt tokens")
    summary = f"Temper counted {counted} tokens for a prompt, and the server reported {reported}"
    if abs(counted - reported) > _TOLERANCE * reported:
        remedy = "compaction uses estimates; reserve some space with context.window_tokens"
        return warn(summary, remedy, counts_exactly=False)
    return ok(summary, counts_exactly=True)


async def check_speed(target: Target) -> Finding:
    """Measure the speed of a reply, from the server's timings or else from the total time."""
    body = _long_request("timed", "Count from one to a hundred, in words.", 64)
    began = time.monotonic()
    answer = await target.post_to_temper(body, headers=_UNCHANGED)
    seconds = time.monotonic() - began
    tokens = count(answer.document, "usage", "completion_tokens") or 0
    tokens_per_second = tokens / max(seconds, 1e-6)
    writes = _number(answer.document, "timings", "predicted_per_second") or tokens_per_second
    reads = _number(answer.document, "timings", "prompt_per_second")
    if (count(answer.document, "timings", "prompt_n") or 0) < _LEAST_TOKENS:
        reads = None  # nearly all of the prompt came from the cache
    if answer.status >= 400 or (tokens < _LEAST_TOKENS and reads is None):
        return skip("the reply was too short to measure the speed")
    if tokens < _LEAST_TOKENS and reads is not None:
        summary = f"prompt: {reads:.0f} tokens/s; the reply was too short to measure"
        return ok(summary, reads_per_second=round(reads, 1))
    if reads is None:
        return ok(f"generation: {writes:.0f} tokens/s", writes_per_second=round(writes, 1))
    return ok(
        f"prompt: {reads:.0f} tokens/s, generation: {writes:.0f} tokens/s",
        reads_per_second=round(reads, 1),
        writes_per_second=round(writes, 1),
    )


def _number(document: JsonObject, *path: str | int) -> float | None:
    value = member(document, *path)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


async def check_overflow(target: Target) -> Finding:
    """Send a prompt that exceeds the window: the server must reject it, not truncate it."""
    window = target.known.window
    if window is None or window > _MOST_TOKENS:
        return skip("the window is unknown, or too large to fill in a test")
    # each word has two or more tokens
    long_text = " ".join(f"word{number}" for number in range(window))
    body: JsonObject = {"messages": [_user_message(long_text)], "max_tokens": 1}
    answer = await target.post_to_temper(body, headers=_UNCHANGED)
    # `n_read` is a field of Temper's error for a prompt that the engine truncated (F18)
    is_truncated = member(answer.document, "error", "n_read") is not None
    if member(answer.document, "error", "code") == "context_length_exceeded" and not is_truncated:
        return ok("a prompt beyond the window is rejected")
    if answer.status < 400 or is_truncated:
        return fail(
            "a prompt beyond the window was truncated silently",
            'Ollama: set backend.kind = "ollama"; llama-server: remove --context-shift',
        )
    return warn(
        f"a prompt beyond the window failed with an unknown error: {answer.error_message}",
        "Temper cannot shorten the prompt and retry; set context.window_tokens",
    )


async def check_disconnect(target: Target) -> Finding:
    """Disconnect during a reply, and measure the time until the slot is free."""
    if await _busy(target) != 0:
        return skip("the server does not report its slots, or they are in use")
    body: JsonObject = {
        "messages": [_user_message("Count from one to a thousand, in words.")],
        "stream": True,
        "max_tokens": 2048,
        "ignore_eos": True,  # so that the server still generates when the client disconnects
    }
    stream = target.direct.stream("POST", CHAT, json=body, headers=target.authorization)
    async with stream as reply:
        await anext(reply.aiter_raw(), b"")
    clock = asyncio.get_running_loop().time
    disconnected_at = clock()
    while await _busy(target):
        if clock() - disconnected_at > 3.0:
            return fail(
                "the server keeps generating after a client has disconnected",
                "update the server",
            )
        await asyncio.sleep(_POLL_SECONDS)
    seconds = clock() - disconnected_at
    summary = f"a slot is free {seconds * 1000:.0f} ms after its client disconnects"
    if seconds > _SLOW_SECONDS:
        return warn(
            summary, "use a smaller --ubatch-size: the server checks for disconnects once per batch"
        )
    return ok(summary)


async def _busy(target: Target) -> int | None:
    """Return the number of running requests; None if the server does not report it."""
    metrics = await target.direct.get("/metrics", headers=target.authorization)
    if metrics.is_success and (running := _RUNNING.findall(metrics.content)):
        return int(sum(map(float, running)))
    answer = await target.direct.get("/slots", headers=target.authorization)
    try:
        slots = json.parse(answer.content)
    except ValueError:
        slots = None
    if answer.is_error or not isinstance(slots, list):
        return None
    return sum(member(slot, "is_processing") is True for slot in slots)


def _long_request(title: str, end: str = "Say OK.", most_tokens: int = 1) -> JsonObject:
    lines = "\n".join(f"{title} {n}: all is well in section {n}" for n in range(_LINES))
    return {"messages": [_user_message(f"{lines}\n{end}")], "max_tokens": most_tokens}


def _user_message(text: str) -> JsonObject:
    return {"role": "user", "content": text}


# names in PROBES; each of these constraints can make calls match their schema
_CALL_CONSTRAINTS = ("required_arguments", "strict", "schema_beside_tools")


async def check_constraints(target: Target) -> Finding:
    """Send each probe to the engine, and list the constraints that its responses respect."""
    # request -> response, because probes with the same request share its response
    answers: dict[bytes, httpx.Response] = {}
    is_enforced: dict[str, bool] = {}
    for name, probe in PROBES.items():
        body = write_probe(probe, target.model)
        if body not in answers:
            headers = {"content-type": "application/json", **target.authorization}
            answers[body] = await target.direct.post(probe.path, content=body, headers=headers)
        answer = answers[body]
        is_enforced[name] = answer.is_success and probe.shows(documents_in(answer.content))
    enforced = [name for name in is_enforced if is_enforced[name]]
    ignored = [name for name in is_enforced if not is_enforced[name]]
    summary = f"enforced: {', '.join(enforced) or 'none'}; ignored: {', '.join(ignored) or 'none'}"
    if not any(is_enforced[name] for name in _CALL_CONSTRAINTS):
        remedy = "calls cannot be constrained to their schema; use a model that is good at calls"
        return warn(summary, remedy, engine_honours=enforced, engine_ignores=ignored)
    return ok(summary, engine_honours=enforced, engine_ignores=ignored)


async def list_refusals(target: Target) -> Finding:
    """List the features that the engine lacks or has rejected so far, with Temper's workarounds."""
    answer = await target.temper.get(f"/v1/models/{quote(target.model, safe='')}")
    lacks = member(answer.json(), "engine", "lacks")
    if not isinstance(lacks, list):
        return skip("the engine is unknown")
    features = [f"{name}: {Capability[f'{name}'.upper()].value}" for name in lacks]
    summary = (
        f"the engine lacks {'; '.join(features)}"
        if features
        else "the engine has not rejected any feature so far"
    )
    return ok(summary, engine_lacks=[*map(str, lacks)])
