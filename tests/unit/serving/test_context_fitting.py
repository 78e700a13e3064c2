import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
from msgspec.structs import replace as alter

from proxy.backends.client import Backend
from proxy.context.budget import BudgetMode
from proxy.context.compaction import Fitted
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import ReplyEvent, ReplyFinished, UsageReported
from proxy.conversation.tools import ToolCall
from proxy.errors import ContextOverflow
from proxy.guardrails.model_quirks import GENERIC
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.preparation import Policy, RequestPlan, plan_request
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC as GENERIC_PROFILE
from proxy.profiles.recognition import Recognition
from proxy.serving.context_fitting import ContextPolicy, Fitting, FittingMode, Strategy
from tests.fakes.backend import ScriptedBackend, every
from tests.fakes.playbook import make_request

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
    """Return the tier, and whether steps were dropped and a digest tells of them."""
    assert fitted.compacted is not None
    has_digest = any(message.text.startswith("[Note: ") for message in fitted.messages)
    return fitted.compacted.tier, len(fitted.messages) < 81, has_digest


@pytest.mark.parametrize(
    ("strategy", "found"),
    [
        ("tiered", (2, True, True)),
        ("sliding", (2, True, False)),
    ],
)
def test_the_operator_chooses_the_strategy(
    strategy: Strategy, found: tuple[int, bool, bool]
) -> None:
    assert account(chosen(ContextPolicy(strategy=strategy))) == found


def test_where_nothing_is_shortened_what_is_too_long_is_one_clear_error() -> None:
    with pytest.raises(ContextOverflow, match=r"nothing of it is left out here"):
        chosen(ContextPolicy(strategy="none"))


def test_a_client_may_have_it_off_or_only_reported() -> None:
    whole = Fitted(drafted(40).messages)
    assert chosen(ContextPolicy(), mode=FittingMode.OFF) == whole
    assert chosen(ContextPolicy(FittingMode.OFF)) == whole
    assert account(chosen(ContextPolicy(), mode=FittingMode.REPORT)) == (2, False, False)
    allowed = chosen(ContextPolicy(FittingMode.OFF), mode=FittingMode.AUTO)
    assert account(allowed) == (2, True, True)


def test_where_nothing_may_be_changed_it_is_only_reported() -> None:
    plan = drafted(40, Policy(mode=Mode.OBSERVE))
    assert account(chosen(ContextPolicy(), plan=plan)) == (2, False, False)


def test_a_conversation_far_from_its_limit_is_only_measured() -> None:
    fitted = chosen(ContextPolicy(), plan=drafted(1))
    assert fitted.compacted is not None
    assert fitted.compacted.tier == 0
    assert 0 < fitted.compacted.sent == fitted.compacted.client < 1000


@pytest.mark.parametrize(("reserve", "tier"), [(None, 2), (0, 0)])
def test_a_ceiling_of_the_answer_takes_no_room_from_the_prompt(
    reserve: int | None, tier: int
) -> None:
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


def test_the_window_may_be_made_to_count_as_smaller() -> None:
    long = plan_request(make_request(user_message("word " * 1000)), Policy())
    with pytest.raises(ContextOverflow) as raised:
        chosen(ContextPolicy(limit=1000), plan=long)
    assert raised.value.window == 1000


@pytest.mark.parametrize("window", [2000, None])
def test_others_run_while_a_result_of_megabytes_is_weighed(window: int | None) -> None:
    result = tool_result("c0", "a line of many words\n" * 60_000)
    asked = assistant_message("", (ToolCall("c0", "get_time", "{}"),))
    long = plan_request(make_request(user_message("Hi"), asked, result), Policy())
    happened: list[str] = []

    async def other() -> None:
        for _ in range(50):
            happened.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        fitting = Fitting(ScriptedBackend(), ContextPolicy())
        running = asyncio.create_task(other())
        await asyncio.sleep(0)
        await fitting.fit(long, replace(KNOWN, window=window), {})
        happened.append("fitted")
        await running

    asyncio.run(both())
    assert happened == ["other"] * 50 + ["fitted"]


class Counted(ScriptedBackend):
    """Remembers which texts it counted."""

    texts: list[str]

    def __init__(self, *counts: int) -> None:
        super().__init__(counts=list(counts))
        self.texts = []

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        self.texts += texts
        return await super().count_texts(texts, headers)


def test_a_model_is_counted_at_first_sight_and_then_only_what_matters() -> None:
    """Far from the limit, what is new is guessed unless it is a large part of the prompt."""

    async def scene() -> None:
        backend = Counted(900)
        fitting = Fitting(backend, ContextPolicy())
        await fitting.fit(drafted(12), replace(KNOWN, window=20_000), {})
        first = len(backend.texts)
        assert (first, len(backend.counted)) == (25, 1)
        await fitting.fit(drafted(13), replace(KNOWN, window=20_000), {})
        assert len(backend.texts) == first
        await fitting.fit(drafted(17), replace(KNOWN, window=20_000), {})
        assert len(backend.texts) == first + 10
        await fitting.fit(drafted(18), KNOWN, {})
        cut = backend.texts[first + 12 :]
        assert cut
        assert all(text.startswith(("[cut, ", "[Note: ", "- ")) for text in cut)
        counted = len(backend.texts)
        await fitting.fit(drafted(18), KNOWN, {})
        assert len(backend.texts) == counted
        assert len(backend.counted) == 1

    asyncio.run(scene())


def test_a_backend_that_cannot_count_is_estimated() -> None:
    async def scene() -> None:
        fitting = Fitting(ScriptedBackend(), ContextPolicy())
        fitted = await fitting.fit(drafted(40), KNOWN, {})
        assert fitted.compacted is not None
        assert fitted.compacted.sent < 2000 < fitted.compacted.client

    asyncio.run(scene())


async def asked(backend: Backend, plan: RequestPlan) -> list[ReplyEvent]:
    async with aclosing(backend.ask(plan.question(), {})) as events:
        return await every(events)


def test_what_prompts_really_cost_is_learnt_from_replies_and_refusals() -> None:
    plan = drafted(40)

    async def estimate(script: list[ReplyEvent | ContextOverflow]) -> int:
        backend = ScriptedBackend([[*script]])
        fitting = Fitting(backend, ContextPolicy())
        listened = fitting.learning_backend("m")
        assert listened.name == "scripted"
        if isinstance(script[0], ContextOverflow):
            with pytest.raises(ContextOverflow):
                await asked(listened, plan)
        else:
            assert await asked(listened, plan) == script
        return await fitting.count(plan.question(), KNOWN, {})

    usages: list[list[ReplyEvent | ContextOverflow]] = [
        [UsageReported({"prompt_tokens": 20_000}), ReplyFinished("stop")],
        [UsageReported({}), ReplyFinished("stop")],
        [ContextOverflow("too long", 20_000, 2000)],
    ]
    learnt, plain, refused = (asyncio.run(estimate(script)) for script in usages)
    assert learnt == refused
    assert abs(learnt - 20_000) < abs(plain - 20_000)


def test_a_session_whose_beginning_changes_is_named_in_the_log(
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


def test_what_is_added_to_the_tools_for_a_policy_is_no_break(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.serving.context_fitting")
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for policy in (TextPolicy.RESPOND, TextPolicy.ACCEPT, TextPolicy.RESPOND):
        fitting.watch_prefix("m", drafted(1, Policy(text_policy=policy)))
    assert caplog.messages == []


def test_only_so_many_sessions_and_models_are_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.serving.context_fitting")
    fitting = Fitting(ScriptedBackend(), ContextPolicy())
    for number in range(300):
        plan = plan_request(make_request(user_message(f"session {number}")), Policy())
        fitting.watch_prefix("m", plan)
    changed = make_request(user_message("session 0"), tools=())
    fitting.watch_prefix("m", plan_request(changed, Policy()))
    assert caplog.messages == []
    for number in range(100):
        assert fitting.learning_backend(f"model {number}").name == "scripted"
