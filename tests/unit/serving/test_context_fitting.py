import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest
from msgspec.structs import replace as alter

from proxy.backends.client import ChatBackend, PromptTokens, ReplyEvents
from proxy.context.budget import NUDGES, BudgetMode
from proxy.context.compaction import Fitted
from proxy.context.prefix import Reread
from proxy.context.rough_tokens import count_rough_tokens
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    EventSink,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import ToolCall
from proxy.dialects.lenient_json import read_usage, write_usage
from proxy.errors import ContextOverflow
from proxy.facts import Compacted, Fact
from proxy.guardrails.model_quirks import GENERIC
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy, RequestPlan
from proxy.inference.preparation import plan_request
from proxy.processes.process import ServerAddress
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC as GENERIC_PROFILE
from proxy.profiles.recognition import Recognition
from proxy.serving.context_fitting import ContextPolicy, Fitting, FittingMode, Strategy
from proxy.serving.rereading import PromptReading, WatchedPrompt, explain, refine
from tests.fakes.backend import FollowedBackend, ScriptedBackend, every
from tests.fakes.playbook import make_request
from tests.fakes.tokenizing import TokenizingBackend
from tests.unit.context.conversations import in_bytes, spelled

KNOWN = KnownModel("m", Recognition(GENERIC_PROFILE, "test"), GENERIC, window=2000)


def rounds(number: int) -> list[Message]:
    return [
        message
        for count in range(number)
        for message in (
            assistant_message("", (ToolCall(f"c{count}", "get_time", "{}"),)),
            tool_result(f"c{count}", f"{count} " + "word " * 60),
        )
    ]


def plan_rounds(number: int, policy: Policy | None = None) -> RequestPlan:
    return plan_request(make_request(user_message("Hi"), *rounds(number)), policy or Policy())


def fit(
    policy: ContextPolicy,
    *,
    known: KnownModel = KNOWN,
    mode: FittingMode | None = None,
    plan: RequestPlan | None = None,
) -> Fitted:
    fitting = Fitting(ScriptedBackend(), policy)
    return asyncio.run(fitting.fit(plan or plan_rounds(40), known, {}, mode))


def account(fitted: Fitted) -> tuple[int, bool, bool]:
    """Return the tier, whether messages were removed, and whether the prompt has a digest."""
    assert fitted.compacted is not None
    has_digest = any(message.text.startswith("[Note: ") for message in fitted.messages)
    return fitted.compacted.tier, len(fitted.messages) < 81, has_digest


@pytest.mark.parametrize(
    ("strategy", "expected"), [("tiered", (2, True, True)), ("sliding", (2, True, False))]
)
def test_the_strategy_tiered_adds_a_digest_but_the_strategy_sliding_does_not(
    strategy: Strategy, expected: tuple[int, bool, bool]
) -> None:
    assert account(fit(ContextPolicy(strategy=strategy))) == expected


def test_a_context_overflow_is_an_error_if_the_strategy_is_none() -> None:
    with pytest.raises(ContextOverflow, match=r"compaction is disabled"):
        fit(ContextPolicy(strategy="none"))


def test_the_compaction_mode_of_a_request_overrides_the_configured_mode() -> None:
    unchanged = Fitted(plan_rounds(40).messages)
    assert fit(ContextPolicy(), mode=FittingMode.OFF) == unchanged
    assert fit(ContextPolicy(FittingMode.OFF)) == unchanged
    assert account(fit(ContextPolicy(), mode=FittingMode.REPORT)) == (2, False, False)
    allowed = fit(ContextPolicy(FittingMode.OFF), mode=FittingMode.AUTO)
    assert account(allowed) == (2, True, True)


def test_observe_mode_reports_the_compaction_and_sends_all_messages() -> None:
    plan = plan_rounds(40, Policy(mode=Mode.OBSERVE))
    assert account(fit(ContextPolicy(), plan=plan)) == (2, False, False)


def test_a_conversation_far_from_its_limit_is_measured_and_not_shortened() -> None:
    fitted = fit(ContextPolicy(), plan=plan_rounds(1))
    assert fitted.compacted is not None
    assert fitted.compacted.tier == 0
    assert 0 < fitted.compacted.sent == fitted.compacted.client < 1000


@pytest.mark.parametrize(("reserve", "tier"), [(None, 2), (0, 0)])
def test_max_tokens_are_reserved_unless_the_answer_reserve_is_0(
    reserve: int | None, tier: int
) -> None:
    request = make_request(user_message("Hi"), *rounds(6))
    ceiling = alter(request, max_tokens=32_000, answer_reserve=reserve)
    fitted = fit(ContextPolicy(), plan=plan_request(ceiling, Policy()))
    assert fitted.compacted is not None
    assert fitted.compacted.tier == tier


def test_the_conversation_is_not_shortened_if_the_window_is_unknown() -> None:
    hidden = replace(KNOWN, window=None)
    assert fit(ContextPolicy(), known=hidden) == Fitted(plan_rounds(40).messages)


@pytest.mark.parametrize(
    ("budget", "limit", "size"),
    [
        ("backend", None, 2000),
        ("backend", 900, 900),
        ("manual", 900, 900),
        ("full", 900, 900),
        ("fast", None, 1000),
        ("fast", 900, 900),
    ],
)
def test_the_budget_and_the_limit_set_the_size_of_the_window(
    budget: BudgetMode, limit: int | None, size: int
) -> None:
    assert ContextPolicy(limit=limit, budget=budget).window(2000).size == size


def test_the_configured_limit_replaces_a_larger_window_of_the_backend() -> None:
    long = plan_request(make_request(user_message("word " * 1000)), Policy())
    with pytest.raises(ContextOverflow) as raised:
        fit(ContextPolicy(limit=1000), plan=long)
    assert raised.value.window == 1000


@pytest.mark.parametrize("window", [2000, None])
async def test_the_event_loop_stays_responsive_while_megabytes_are_counted(
    window: int | None,
) -> None:
    result = tool_result("c0", "a line of many words\n" * 60_000)
    message = assistant_message("", (ToolCall("c0", "get_time", "{}"),))
    long = plan_request(make_request(user_message("Hi"), message, result), Policy())
    happened: list[str] = []

    async def other() -> None:
        for _ in range(50):
            happened.append("other")
            await asyncio.sleep(0)

    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    running = asyncio.create_task(other())
    await asyncio.sleep(0)
    await fitting.fit(long, replace(KNOWN, window=window), {})
    happened.append("fitted")
    await running
    assert happened == ["other"] * 50 + ["fitted"]


class Counting(TokenizingBackend):
    """An engine that counts prompts, and texts if `counts_texts`; it records both."""

    def __init__(self, *, counts_texts: bool = True) -> None:
        super().__init__(tokenize=count_rough_tokens, window=2000)
        self.counts_texts = counts_texts
        self.texts: list[str] = []
        self.prompts: list[int] = []

    async def count(self, upstream_request: UpstreamRequest, headers: dict[str, str]) -> int | None:
        self.prompts.append(self.cost(upstream_request))
        return self.prompts[-1]

    async def count_texts(
        self, texts: Iterable[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        texts = [*texts]
        self.texts += texts
        return await super().count_texts(texts, headers) if self.counts_texts else None


async def test_the_first_prompt_is_counted_and_later_prompts_only_if_needed() -> None:
    """A longer prompt is estimated if it is far from the limit and contains little new text."""
    backend = Counting()
    fitting = Fitting(backend, ContextPolicy())
    large_window = replace(KNOWN, window=20_000)
    await fitting.fit(plan_rounds(12), large_window, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 1)
    await fitting.fit(plan_rounds(13), large_window, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 1)
    await fitting.fit(plan_rounds(17), large_window, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 2)
    await fitting.fit(plan_rounds(40), KNOWN, {})
    assert len(backend.prompts) == 3
    cut = backend.texts[81:]
    assert cut
    assert all(text.startswith(("[cut, ", "[Note: ", "- ")) for text in cut)
    counted = len(backend.texts)
    await fitting.fit(plan_rounds(40), KNOWN, {})
    assert len(backend.texts) == counted
    assert len(backend.prompts) == 3


def conversation(chance: random.Random) -> RequestPlan:
    """Make a conversation that is hard to estimate: prose, code, digits and other alphabets."""
    materials = ("word ", "请先列出", "0xf3a9 ", "if (x[i]) { ", "\t\n  ", "é" * 9)
    messages = [user_message("Hi")]
    for count in range(chance.randint(1, 24)):
        call = ToolCall(f"c{count}", "get_time", json.dump_text({"n": count}))
        text = chance.choice(materials) * chance.randint(1, 16)
        messages += [assistant_message("", (call,)), tool_result(call.id, f"{count} {text}")]
    return plan_request(make_request(*messages), Policy())


@pytest.mark.parametrize("counts_texts", [True, False])
@pytest.mark.parametrize("tokenize", [count_rough_tokens, in_bytes, spelled(4), spelled(1)])
async def test_a_conversation_that_fits_by_the_count_of_the_engine_is_never_shortened(
    tokenize: Callable[[str], int], *, counts_texts: bool
) -> None:
    """Each case sends 125 conversations in a row; the engine rejects some of them."""
    chance = random.Random(28)
    backend = Counting(counts_texts=counts_texts)
    backend.tokenize = tokenize
    fitting = Fitting(backend, ContextPolicy())
    followed = FollowedBackend(backend, fitting.learning("m", 2000))
    fits_whole: list[bool] = []
    for _ in range(125):
        plan = conversation(chance)
        with suppress(ContextOverflow):
            fitted = await fitting.fit(plan, KNOWN, {})
            upstream_request = alter(plan.upstream_request(), messages=fitted.messages)
            is_whole = fitted.messages == plan.messages
            if backend.cost(plan.upstream_request()) <= 2000 - 500 - NUDGES:
                fits_whole.append(is_whole)
            await every(followed.stream(upstream_request, {}))
    assert len(fits_whole) > 25
    assert all(fits_whole)


PICTURE: JsonObject = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
}


def test_a_prompt_is_sent_if_only_the_estimated_size_of_its_image_exceeds_the_window() -> None:
    """The engine may refuse the image with a better error: "tiny is not a multimodal model"."""
    picture = Message("user", "", source=json.dump(PICTURE))
    plan = plan_request(make_request(picture), Policy())
    assert fit(ContextPolicy(), plan=plan) == Fitted(plan.messages)


async def test_without_a_count_endpoint_the_size_of_the_prompt_is_estimated() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    fitted = await fitting.fit(plan_rounds(40), KNOWN, {})
    assert fitted.compacted is not None
    assert fitted.compacted.sent < 2000 < fitted.compacted.client


async def run_reply(backend: ChatBackend, plan: RequestPlan) -> list[ReplyEvent]:
    async with aclosing(backend.stream(plan.upstream_request(), {})) as events:
        return await every(events)


def test_the_size_of_a_prompt_is_learned_from_usage_and_from_refusals() -> None:
    plan = plan_rounds(40)

    async def estimate(script: list[ReplyEvent | ContextOverflow]) -> int:
        backend = ScriptedBackend([[*script]])
        fitting = Fitting(backend, ContextPolicy())
        followed = FollowedBackend(backend, fitting.learning("m"))
        if isinstance(script[0], ContextOverflow):
            with pytest.raises(ContextOverflow):
                await run_reply(followed, plan)
        else:
            usage, end = await run_reply(followed, plan)
            assert end == script[1]
            assert usage == script[0] or script[0] == UsageReported({})
        return (await fitting.count(plan.upstream_request(), KNOWN, {})).tokens

    usages: list[list[ReplyEvent | ContextOverflow]] = [
        [UsageReported({"prompt_tokens": 20_000}), ReplyFinished("stop")],
        [UsageReported({}), ReplyFinished("stop")],
        [ContextOverflow("too long", 20_000, 2000)],
    ]
    learnt, plain, refused = (asyncio.run(estimate(script)) for script in usages)
    assert learnt == refused
    assert abs(learnt - 20_000) < abs(plain - 20_000)


SAID = TextDelta("It is sunny in Paris.")
NOTHING: JsonObject = {"prompt_tokens": 0, "completion_tokens": 0}


class OneBatchBackend(ScriptedBackend):
    """Sends a reply in one batch."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        async with aclosing(super().stream(upstream_request, headers, sink)) as events:
            yield [event async for batch in events for event in batch]


@pytest.mark.parametrize("kind", [ScriptedBackend, OneBatchBackend])
@pytest.mark.parametrize("reported", [None, UsageReported({}), UsageReported(NOTHING, stop="x")])
async def test_the_usage_is_estimated_if_the_engine_reports_none(
    reported: UsageReported | None, kind: type[ScriptedBackend]
) -> None:
    plan = plan_rounds(40)
    end = ReplyFinished("stop")
    backend = kind([[SAID, end] if reported is None else [SAID, reported, end]])
    fitting = Fitting(backend, ContextPolicy())
    text, usage, last = await run_reply(
        FollowedBackend(backend, fitting.learning("m", 100_000)), plan
    )
    assert (text, last) == (SAID, end)
    assert isinstance(usage, UsageReported)
    counts = read_usage(usage.usage)
    assert (counts.answer, counts.prompt) == (6, fitting.estimate("m", plan))
    assert counts.total == counts.prompt + 6
    assert usage.usage["temper"] == {"estimated": True}
    assert usage.stop == ("" if reported is None else reported.stop)


async def test_the_usage_that_an_engine_reports_is_not_changed() -> None:
    reported = UsageReported({"prompt_tokens": 5, "completion_tokens": 0})
    backend = ScriptedBackend([[SAID, reported, ReplyFinished("stop")]])
    learning = Fitting(backend, ContextPolicy()).learning("m")
    assert reported in await run_reply(FollowedBackend(backend, learning), plan_rounds(40))


def record_prompt(
    fitting: Fitting,
    plan: RequestPlan,
    tokens: int,
    cached: int | None,
    *,
    server: str = "http://a",
    facts: tuple[Fact, ...] = (),
    timings: JsonObject | None = None,
) -> Reread | None:
    """Report that the engine read the prompt of `plan`; return what it read again, if any."""
    watched = fitting.watch_prompt("m", plan)
    usage = UsageReported(write_usage(tokens, 1, cached), timings)
    return fitting.record_reading(watched, PromptReading(usage, server, facts, 7.0))


def plan_rewritten() -> RequestPlan:
    return plan_request(
        make_request(user_message("Hi"), user_message("else"), *rounds(2)), Policy()
    )


def test_the_reread_of_a_prompt_that_the_client_changed_names_the_change() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    first = record_prompt(fitting, plan_rounds(1), 1000, 0, timings={"prompt_ms": 9e3})
    assert first is None
    assert record_prompt(fitting, plan_rounds(2), 1400, 990, timings={"prompt_ms": 9e3}) is None
    reason = "a message was inserted before message 1"
    reread = record_prompt(fitting, plan_rewritten(), 13_020, 589, timings={"prompt_ms": 38_000.0})
    assert reread == Reread(13_020, 589, 38.0, "client", reason)
    assert str(reread) == f"12,431 of 13,020 tokens (38 s), because {reason}"


def test_the_time_of_a_reread_is_the_time_to_the_first_token_if_there_are_no_timings() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    record_prompt(fitting, plan_rounds(1), 1000, None)
    assert (
        record_prompt(fitting, plan_rounds(2), 1400, None) is None
    )  # no cached tokens are reported, and no message changed
    reread = record_prompt(fitting, plan_rewritten(), 1400, None)
    assert str(reread).startswith("up to 1,400 tokens (about 7.0 s), because a message was")


def test_a_changed_prompt_that_was_cached_is_not_a_reread() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    record_prompt(fitting, plan_rounds(2), 1000, 0)
    assert record_prompt(fitting, plan_rewritten(), 1000, 999) is None


class RewritingBackend(ScriptedBackend):
    """A backend whose growing prompts share their first `1000 - rewrites` tokens.

    The template rewrites all later tokens whenever a message is added.
    """

    def __init__(self, rewrites: int = 0) -> None:
        super().__init__()
        self.rendered = 0
        self._rewrites = rewrites

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: dict[str, str]
    ) -> PromptTokens:
        self.rendered += 1
        count = len(upstream_request.messages)
        return [*range(1000 - self._rewrites), *(-count for _ in range(100 * count))]


async def test_a_reread_is_logged_only_if_it_took_at_least_reread_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for threshold, is_logged in ((5.0, False), (2.0, True)):
        fitting = Fitting(backend := RewritingBackend(), ContextPolicy(reread_seconds=threshold))
        record_prompt(fitting, plan_rounds(1), 1000, 0)
        watched, plan = fitting.watch_prompt("m", plan_rounds(1)), plan_rounds(2)
        reread = Reread(1400, 10, 2.5, "client", "the order of the tools changed")
        assert await fitting.log_reread(reread, watched, plan, {}) == reread
        expected = "prompt re-read: 1,390 of 1,400 tokens (2.5 s), because the order of the tools"
        assert caplog.text.count(expected) == is_logged
        assert backend.rendered == 0  # the client is the cause, so no tokens are compared


@pytest.mark.parametrize(
    ("rewrites", "cached", "causer"), [(0, 400, "engine"), (600, 400, "template"), (0, 0, "engine")]
)
async def test_compared_tokens_show_whether_the_template_or_the_engine_caused_a_reread(
    rewrites: int, cached: int, causer: str
) -> None:
    fitting = Fitting(RewritingBackend(rewrites), ContextPolicy())
    record_prompt(fitting, plan_rounds(1), 1000, 0)
    watched = fitting.watch_prompt("m", plan_rounds(2))
    reread = Reread(1400, cached, 9.0, "engine", "3 other requests used the model's cache")
    explained = await fitting.log_reread(reread, watched, plan_rounds(2), {})
    assert explained.causer == causer


def test_a_reread_also_mentions_tokens_that_the_engine_lost_before_the_change() -> None:
    reread = Reread(1400, 10, 9.0, "client", "the order of the tools changed")
    assert refine(reread, 60) == reread
    lost = refine(reread, 700)
    assert lost.causer == "client"
    assert lost.reason.endswith("; the engine had also lost the 690 tokens before that")
    silent = Reread(1400, None, 9.0, "client", "the order of the tools changed")
    assert refine(silent, 700) == silent


@pytest.mark.parametrize(
    ("others", "server", "timings", "cached", "expected"),
    [
        (0, "http://b", {}, 0, "the request went to another server (http://b)"),
        (0, "http://a", {"load_duration": 2e9}, 0, "the engine had unloaded the model"),
        (1, "http://a", {}, 40, "another request used the model's cache"),
        (3, "http://a", {}, 40, "3 other requests used the model's cache"),
        (0, "http://a", {}, 400, "the chat template writes an earlier message differently"),
        (0, "http://a", {}, 0, "the engine no longer had the prompt"),
    ],
)
def test_the_reread_of_an_unchanged_prompt_names_the_cause_in_the_engine(
    others: int, server: str, timings: JsonObject, cached: int, expected: str
) -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    record_prompt(fitting, plan_rounds(1), 1000, 0)
    for number in range(others):
        other = plan_request(make_request(user_message(f"session {number}")), Policy())
        fitting.watch_prompt("m", other)
    reread = record_prompt(fitting, plan_rounds(2), 1400, cached, server=server, timings=timings)
    assert reread is not None
    assert (reread.causer, reread.reason[: len(expected)]) == ("engine", expected)


def test_a_reread_after_a_restart_of_a_managed_server_names_the_restart() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    before, later = (fitting.watch_prompt("m", plan_rounds(number)).now for number in (1, 2))
    before.tokens, before.address = 1000, ServerAddress("http://a", "one")
    later.tokens, later.address = 1400, ServerAddress("http://b", "two")
    report = PromptReading(UsageReported(write_usage(1400, 1, 0)), "")
    reread = explain(WatchedPrompt(later, before, None), before, report)
    assert reread is not None
    assert "started again" in reread.reason


def test_a_reread_names_a_new_compaction_unless_the_client_removed_tools() -> None:
    cut = Compacted(1, 4, 0, 2, 1000, 9000, 4096, is_new=True)
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    record_prompt(fitting, plan_rounds(1), 1000, 0)
    reread = record_prompt(fitting, plan_rewritten(), 1000, 100, facts=(cut,))
    assert reread is not None
    expected = ("temper", "Temper shortened the conversation (cut number 2)")
    assert (reread.causer, reread.reason) == expected
    without_tools = plan_request(make_request(user_message("Hi"), tools=()), Policy())
    reread = record_prompt(fitting, without_tools, 1000, 100, facts=(cut,))
    assert reread is not None
    assert (reread.causer, reread.reason) == ("client", "tools were removed: get_weather, get_time")


def test_tools_added_by_a_text_policy_do_not_break_the_prefix() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for policy in (TextPolicy.RESPOND, TextPolicy.ACCEPT, TextPolicy.RESPOND):
        watched = fitting.watch_prompt("m", plan_rounds(1, Policy(text_policy=policy)))
        assert watched.broken is None


def test_the_number_of_stored_sessions_and_models_is_limited() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for number in range(300):
        plan = plan_request(make_request(user_message(f"session {number}")), Policy())
        fitting.watch_prompt("m", plan)
    changed = make_request(user_message("session 0"), tools=())
    assert fitting.watch_prompt("m", plan_request(changed, Policy())).before is None
    for number in range(100):
        fitting.learning(f"model {number}")
