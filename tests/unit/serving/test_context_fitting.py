import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest
from msgspec.structs import replace as alter

from proxy.backends.client import ChatBackend, ReplyEvents
from proxy.context.budget import NUDGES, BudgetMode
from proxy.context.compaction import Fitted
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
from proxy.dialects.lenient_json import read_usage
from proxy.errors import ContextOverflow
from proxy.guardrails.model_quirks import GENERIC
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy, RequestPlan
from proxy.inference.preparation import plan_request
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC as GENERIC_PROFILE
from proxy.profiles.recognition import Recognition
from proxy.serving.context_fitting import ContextPolicy, Fitting, FittingMode, Strategy
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


def drafted(number: int, policy: Policy | None = None) -> RequestPlan:
    return plan_request(make_request(user_message("Hi"), *rounds(number)), policy or Policy())


def chosen(
    policy: ContextPolicy,
    *,
    known: KnownModel = KNOWN,
    mode: FittingMode | None = None,
    plan: RequestPlan | None = None,
) -> Fitted:
    fitting = Fitting(ScriptedBackend(), policy)
    return asyncio.run(fitting.fit(plan or drafted(40), known, {}, mode))


def account(fitted: Fitted) -> tuple[int, bool, bool]:
    """Return the tier, whether steps were dropped, and whether a digest mentions them."""
    assert fitted.compacted is not None
    has_digest = any(message.text.startswith("[Note: ") for message in fitted.messages)
    return fitted.compacted.tier, len(fitted.messages) < 81, has_digest


@pytest.mark.parametrize(
    ("strategy", "expected"), [("tiered", (2, True, True)), ("sliding", (2, True, False))]
)
def test_the_operator_chooses_the_strategy(
    strategy: Strategy, expected: tuple[int, bool, bool]
) -> None:
    assert account(chosen(ContextPolicy(strategy=strategy))) == expected


def test_without_compaction_an_overflow_is_one_clear_error() -> None:
    with pytest.raises(ContextOverflow, match=r"compaction is disabled"):
        chosen(ContextPolicy(strategy="none"))


def test_a_client_may_disable_compaction_or_only_report_it() -> None:
    whole = Fitted(drafted(40).messages)
    assert chosen(ContextPolicy(), mode=FittingMode.OFF) == whole
    assert chosen(ContextPolicy(FittingMode.OFF)) == whole
    assert account(chosen(ContextPolicy(), mode=FittingMode.REPORT)) == (2, False, False)
    allowed = chosen(ContextPolicy(FittingMode.OFF), mode=FittingMode.AUTO)
    assert account(allowed) == (2, True, True)


def test_where_nothing_may_be_changed_compaction_is_only_reported() -> None:
    plan = drafted(40, Policy(mode=Mode.OBSERVE))
    assert account(chosen(ContextPolicy(), plan=plan)) == (2, False, False)


def test_a_conversation_far_from_its_limit_is_only_measured() -> None:
    fitted = chosen(ContextPolicy(), plan=drafted(1))
    assert fitted.compacted is not None
    assert fitted.compacted.tier == 0
    assert 0 < fitted.compacted.sent == fitted.compacted.client < 1000


@pytest.mark.parametrize(("reserve", "tier"), [(None, 2), (0, 0)])
def test_a_max_tokens_limit_takes_no_room_from_the_prompt(reserve: int | None, tier: int) -> None:
    request = make_request(user_message("Hi"), *rounds(6))
    ceiling = alter(request, max_tokens=32_000, answer_reserve=reserve)
    fitted = chosen(ContextPolicy(), plan=plan_request(ceiling, Policy()))
    assert fitted.compacted is not None
    assert fitted.compacted.tier == tier


def test_a_backend_that_hides_its_window_is_sent_everything() -> None:
    hidden = replace(KNOWN, window=None)
    assert chosen(ContextPolicy(), known=hidden) == Fitted(drafted(40).messages)


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
def test_the_budget_decides_how_much_of_a_slot_is_used(
    budget: BudgetMode, limit: int | None, size: int
) -> None:
    assert ContextPolicy(limit=limit, budget=budget).window(2000).size == size


def test_the_window_may_be_reduced_by_the_operator() -> None:
    long = plan_request(make_request(user_message("word " * 1000)), Policy())
    with pytest.raises(ContextOverflow) as raised:
        chosen(ContextPolicy(limit=1000), plan=long)
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
    """Records the counted texts and prompts; some engines count prompts only."""

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


async def test_a_model_is_counted_fully_once_and_later_only_where_it_matters() -> None:
    """Far from the limit, new text is estimated unless it is a large part of the prompt."""
    backend = Counting()
    fitting = Fitting(backend, ContextPolicy())
    far = replace(KNOWN, window=20_000)
    await fitting.fit(drafted(12), far, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 1)
    await fitting.fit(drafted(13), far, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 1)
    await fitting.fit(drafted(17), far, {})
    assert (len(backend.texts), len(backend.prompts)) == (0, 2)
    await fitting.fit(drafted(40), KNOWN, {})
    assert len(backend.prompts) == 3
    cut = backend.texts[81:]
    assert cut
    assert all(text.startswith(("[cut, ", "[Note: ", "- ")) for text in cut)
    counted = len(backend.texts)
    await fitting.fit(drafted(40), KNOWN, {})
    assert len(backend.texts) == counted
    assert len(backend.prompts) == 3


def conversation(chance: random.Random) -> RequestPlan:
    """Make a conversation of prose, code, digits and other alphabets: hard to estimate."""
    materials = ("word ", "请先列出", "0xf3a9 ", "if (x[i]) { ", "\t\n  ", "é" * 9)
    messages = [user_message("Hi")]
    for count in range(chance.randint(1, 24)):
        call = ToolCall(f"c{count}", "get_time", json.dump_text({"n": count}))
        text = chance.choice(materials) * chance.randint(1, 16)
        messages += [assistant_message("", (call,)), tool_result(call.id, f"{count} {text}")]
    return plan_request(make_request(*messages), Policy())


@pytest.mark.parametrize("counts_texts", [True, False])
@pytest.mark.parametrize("tokenize", [count_rough_tokens, in_bytes, spelled(4), spelled(1)])
async def test_a_conversation_that_fits_by_the_engines_count_is_never_cut(
    tokenize: Callable[[str], int], *, counts_texts: bool
) -> None:
    """A thousand conversations, with refusals and unusual prompts between them."""
    chance = random.Random(28)
    backend = Counting(counts_texts=counts_texts)
    backend.tokenize = tokenize
    fitting = Fitting(backend, ContextPolicy())
    listened = FollowedBackend(backend, fitting.learning("m", 2000))
    fits_whole: list[bool] = []
    for _ in range(125):
        plan = conversation(chance)
        with suppress(ContextOverflow):
            fitted = await fitting.fit(plan, KNOWN, {})
            upstream_request = alter(plan.upstream_request(), messages=fitted.messages)
            is_whole = fitted.messages == plan.messages
            if backend.cost(plan.upstream_request()) <= 2000 - 500 - NUDGES:
                fits_whole.append(is_whole)
            await every(listened.stream(upstream_request, {}))
    assert len(fits_whole) > 25
    assert all(fits_whole)


PICTURE: JsonObject = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
}


def test_an_overflow_only_by_the_image_estimate_is_left_to_the_engine() -> None:
    """The engine's reason is better: "tiny is not a multimodal model"."""
    picture = Message("user", "", source=json.dump(PICTURE))
    plan = plan_request(make_request(picture), Policy())
    assert chosen(ContextPolicy(), plan=plan) == Fitted(plan.messages)


async def test_a_backend_without_a_count_endpoint_is_estimated() -> None:
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    fitted = await fitting.fit(drafted(40), KNOWN, {})
    assert fitted.compacted is not None
    assert fitted.compacted.sent < 2000 < fitted.compacted.client


async def run_reply(backend: ChatBackend, plan: RequestPlan) -> list[ReplyEvent]:
    async with aclosing(backend.stream(plan.upstream_request(), {})) as events:
        return await every(events)


def test_actual_costs_are_learned_from_replies_and_refusals() -> None:
    plan = drafted(40)

    async def estimate(script: list[ReplyEvent | ContextOverflow]) -> int:
        backend = ScriptedBackend([[*script]])
        fitting = Fitting(backend, ContextPolicy())
        listened = FollowedBackend(backend, fitting.learning("m"))
        if isinstance(script[0], ContextOverflow):
            with pytest.raises(ContextOverflow):
                await run_reply(listened, plan)
        else:
            usage, end = await run_reply(listened, plan)
            assert end == script[1]
            assert usage == script[0] or script[0] == UsageReported({})
        return await fitting.count(plan.upstream_request(), KNOWN, {})

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


class AtOnce(ScriptedBackend):
    """Sends a reply in one batch."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        async with aclosing(super().stream(upstream_request, headers, sink)) as events:
            yield [event async for batch in events for event in batch]


@pytest.mark.parametrize("kind", [ScriptedBackend, AtOnce])
@pytest.mark.parametrize("reported", [None, UsageReported({}), UsageReported(NOTHING, stop="x")])
async def test_a_usage_that_no_engine_reports_is_estimated(
    reported: UsageReported | None, kind: type[ScriptedBackend]
) -> None:
    plan = drafted(40)
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


async def test_a_usage_that_an_engine_reports_stays() -> None:
    reported = UsageReported({"prompt_tokens": 5, "completion_tokens": 0})
    backend = ScriptedBackend([[SAID, reported, ReplyFinished("stop")]])
    learning = Fitting(backend, ContextPolicy()).learning("m")
    assert reported in await run_reply(FollowedBackend(backend, learning), drafted(40))


def test_a_session_with_a_changed_beginning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.serving.context_fitting")
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    fitting.watch_prefix("m", drafted(1))
    fitting.watch_prefix("m", drafted(2))
    assert caplog.messages == []
    request = make_request(user_message("Hi"), user_message("else"), *rounds(2))
    broken = fitting.watch_prefix("m", plan_request(request, Policy()))
    assert broken is not None
    assert broken.place == 1
    fitting.watch_prefix("m", plan_request(make_request(user_message("Hi"), tools=()), Policy()))
    assert "broke at message 1" in caplog.messages[0]
    assert "broke at the tools" in caplog.messages[1]


def test_tools_added_by_a_policy_do_not_break_the_prefix(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.serving.context_fitting")
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for policy in (TextPolicy.RESPOND, TextPolicy.ACCEPT, TextPolicy.RESPOND):
        fitting.watch_prefix("m", drafted(1, Policy(text_policy=policy)))
    assert caplog.messages == []


def test_only_so_many_sessions_and_models_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.serving.context_fitting")
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for number in range(300):
        plan = plan_request(make_request(user_message(f"session {number}")), Policy())
        fitting.watch_prefix("m", plan)
    changed = make_request(user_message("session 0"), tools=())
    fitting.watch_prefix("m", plan_request(changed, Policy()))
    assert caplog.messages == []
    for number in range(100):
        fitting.learning(f"model {number}")
