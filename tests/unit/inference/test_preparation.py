import pytest
from msgspec.structs import replace

from proxy.context.compaction import Fitted
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import ReplyFinished, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolCall, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.errors import ContextOverflow
from proxy.facts import Compacted, Healed, LoopNoticed, RoundsExceeded, Unchecked
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.guardrails.offer import Mode, OfferedTools, Part, TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from tests.fakes.playbook import CLOCK, WEATHER, CountedIds, make_request, make_tool, prepare

BROKEN = Message(
    "assistant",
    "",
    b'{"role":"assistant","tool_calls":[{"id":"a","type":"function",'
    b'"function":{"name":"get_time","arguments":"{bad"}}]}',
)

RESPOND = Policy(text_policy=TextPolicy.RESPOND)


def first_request_of(request: Request, policy: Policy | None = None) -> UpstreamRequest:
    upstream_request = prepare(request, policy or Policy(), CountedIds()).next_request()
    assert upstream_request is not None
    return upstream_request


def test_messages_and_tools_that_need_no_change_are_sent_unchanged() -> None:
    request = make_request()
    upstream_request = first_request_of(request)
    assert upstream_request.messages == request.messages
    assert upstream_request.tools[:2] == request.tools


def test_the_request_of_a_plan_equals_the_first_request_of_its_turn() -> None:
    request = make_request()
    upstream = first_request_of(request)
    worded = plan_request(request, Policy()).upstream_request()
    assert (worded.request, worded.tool_choice) == (upstream.request, upstream.tool_choice)
    assert (worded.messages, worded.tools) == (upstream.messages, upstream.tools)


@pytest.mark.parametrize(("sent", "is_shortened"), [(90, True), (100, False)])
def test_a_prompt_is_marked_shortened_only_if_its_conversation_was_shortened(
    sent: int, is_shortened: bool
) -> None:
    plan = plan_request(make_request(), Policy())
    fitted = Fitted(plan.messages, compacted=Compacted(1, 1, 0, 1, sent, 100, 1000))
    turn = begin(plan, CountedIds(), lambda: True, fitted)
    assert turn.is_shortened is is_shortened


@pytest.mark.fault("F106")
@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_tool_result_is_not_read_as_an_instruction_whatever_its_role(role: str) -> None:
    source: JsonObject = {"role": role, "name": "get_time", "content": "12:00"}
    message = Message(role, "12:00", json.dump(source))
    offer = plan_request(make_request(user_message("Hi"), message), Policy()).offer
    assert offer is not None
    assert (offer.results, offer.instructions) == (("12:00",), ())


def test_the_respond_tool_is_offered_after_the_client_tools() -> None:
    assert [tool.name for tool in first_request_of(make_request(), RESPOND).tools] == [
        "get_weather",
        "get_time",
        "respond",
    ]


def test_a_client_tool_with_the_name_respond_keeps_this_name() -> None:
    client_tool = make_tool("respond", {"type": "object"})
    offered = first_request_of(make_request(tools=(client_tool,)), RESPOND).tools
    assert offered[0] is client_tool
    assert len({tool.name for tool in offered}) == 2


@pytest.mark.parametrize(
    ("request_", "policy"),
    [
        (make_request(), Policy()),
        (make_request(), Policy(text_policy=TextPolicy.ACCEPT)),
        (make_request(), Policy(text_policy=TextPolicy.REQUIRE)),
        (make_request(), Policy(mode=Mode.OFF)),
        (make_request(), Policy(mode=Mode.OBSERVE)),
        (make_request(choice=ToolUse.REQUIRED), RESPOND),
        (make_request(choice=ToolUse.NONE), RESPOND),
        (make_request(answer_schema=True), RESPOND),
    ],
)
def test_the_tool_respond_is_offered_only_under_the_text_policy_respond_and_a_free_choice(
    request_: Request, policy: Policy
) -> None:
    assert first_request_of(request_, policy).tools == (WEATHER, CLOCK)


def test_broken_arguments_in_the_history_are_repaired_and_reported() -> None:
    turn = prepare(make_request(user_message("Hi"), BROKEN), Policy(), CountedIds())
    upstream_request = turn.next_request()
    assert upstream_request is not None
    assert b"{bad" in upstream_request.messages[1].source
    assert isinstance(json.parse(upstream_request.messages[1].source), dict)
    assert upstream_request.messages[1].source != BROKEN.source
    assert Healed("arguments") in turn.facts


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_the_modes_off_and_observe_do_not_repair_the_history(mode: Mode) -> None:
    upstream_request = first_request_of(make_request(user_message("Hi"), BROKEN), Policy(mode=mode))
    assert upstream_request.messages[1] is BROKEN


def test_observe_mode_reports_the_repairs_that_the_history_needs() -> None:
    turn = prepare(make_request(BROKEN), Policy(mode=Mode.OBSERVE), CountedIds())
    assert Healed("arguments") in turn.facts


def test_the_text_policy_of_the_model_applies_unless_the_request_has_a_text_policy() -> None:
    quirks = Quirks(text_policy=TextPolicy.ACCEPT)
    assert first_request_of(make_request(), Policy(quirks=quirks)).tools == (WEATHER, CLOCK)
    wanted = Policy(quirks=quirks, text_policy=TextPolicy.RESPOND)
    assert len(first_request_of(make_request(), wanted).tools) == 3


def test_earlier_reasoning_is_sent_unless_the_quirk_replay_is_none() -> None:
    thought = Message("assistant", "Hi", b'{"role":"assistant","content":"Hi","reasoning":"hm"}')
    request = make_request(user_message("one"), thought, user_message("two"))
    kept = first_request_of(request).messages[1]
    assert kept is thought
    stripped = first_request_of(request, Policy(quirks=Quirks(replay="none"))).messages[1]
    assert stripped.source == b'{"role":"assistant","content":"Hi"}'


def test_the_role_developer_becomes_system_if_the_template_lacks_it() -> None:
    developer = Message("developer", "Be kind.", b'{"role":"developer","content":"Be kind."}')
    request = make_request(developer, user_message("Hi"))
    quirks = Quirks(template=Template(has_developer=False))
    assert first_request_of(request, Policy(quirks=quirks)).messages[0].role == "system"


def test_the_workflow_of_the_client_replaces_the_workflow_of_the_operator() -> None:
    ours = Workflow(("get_time",), (), ("get_weather",))
    for request, is_rejected in [
        (make_request(), True),
        (replace(make_request(), workflow=Workflow(("get_weather",))), False),
    ]:
        turn = prepare(request, Policy(workflow=ours), CountedIds())
        assert turn.next_request() is not None
        turn.receive(ToolCallStarted(0, "a", "get_weather"))
        turn.receive(ToolCallArgumentsDelta(0, '{"city": "Paris"}'))
        turn.receive(ReplyFinished("tool_calls"))
        assert (turn.next_request() is not None) is is_rejected


@pytest.mark.parametrize("resets", [True, False])
def test_with_the_quirk_resets_state_both_attempts_reset_the_prompt_cache(*, resets: bool) -> None:
    quirks = Quirks(resets_state=resets, calls_in_parallel=not resets)
    turn = prepare(make_request(), Policy(quirks=quirks), CountedIds())
    first = turn.next_request()
    turn.receive(ReplyFinished("stop"))
    second = turn.next_request()
    assert first is not None
    assert second is not None
    assert (first.resets_cache, second.resets_cache) == (resets, resets)
    assert first.calls_singly is resets


def test_the_method_fit_receives_the_tool_respond_with_the_client_tools() -> None:
    class LastMessageOnly:
        def fit(
            self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
        ) -> Fitted:
            if len(tools) != 3:
                raise ContextOverflow("too long", None, max_tokens)
            return Fitted(messages[-1:], (Unchecked("x", "y"),))

    request = make_request(user_message("one"), user_message("two"))
    plan = plan_request(request, RESPOND)
    turn = begin(plan, CountedIds(), lambda: True, plan.fit(LastMessageOnly()))
    upstream_request = turn.next_request()
    assert upstream_request is not None
    assert [message.text for message in upstream_request.messages] == ["two"]
    assert Unchecked("x", "y") in turn.facts


def test_the_method_fit_receives_the_answer_reserve_or_else_max_tokens() -> None:
    reserves: list[int | None] = []

    class RecordingFitting:
        def fit(
            self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
        ) -> Fitted:
            reserves.append(max_tokens)
            return Fitted(messages)

    request_of_many = replace(make_request(user_message("one")), max_tokens=32_000)
    for request in (request_of_many, replace(request_of_many, answer_reserve=0)):
        plan_request(request, Policy()).fit(RecordingFitting())
    assert reserves == [32_000, 0]


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_fitted_messages_are_sent_or_else_all_messages_of_the_request(is_cut: bool) -> None:
    plan = plan_request(make_request(user_message("one"), user_message("two")), Policy())
    fitted = Fitted(plan.messages[-1:]) if is_cut else None
    turn = begin(plan, CountedIds(), lambda: True, fitted)
    upstream_request = turn.next_request()
    assert upstream_request is not None
    assert [message.text for message in upstream_request.messages] == (
        ["two"] if is_cut else ["one", "two"]
    )


def test_guardrails_read_the_complete_history_before_it_is_shortened() -> None:
    def facts_of(policy: Policy) -> list[type]:
        rounds = [
            message
            for number in range(4)
            for message in (
                assistant_message("", (ToolCall(f"c{number}", "get_time", "{}"),)),
                tool_result(f"c{number}", "noon"),
            )
        ]
        request = make_request(user_message("When?"), *rounds)
        plan = plan_request(request, policy)
        turn = begin(plan, CountedIds(), lambda: True, Fitted(plan.messages[:1]))
        return [type(fact) for fact in turn.facts]

    assert LoopNoticed in facts_of(Policy())
    assert RoundsExceeded in facts_of(Policy(most_rounds=4))


def test_guardrails_can_be_disabled_one_by_one() -> None:
    def offer_without(*parts: Part) -> OfferedTools:
        policy = Policy(text_policy=TextPolicy.RESPOND, without=frozenset(parts))
        offer = plan_request(make_request(), policy).offer
        assert offer is not None
        return offer

    whole = offer_without()
    assert (whole.respond is not None, bool(whole.syntaxes), whole.repairs) == (True, True, True)
    assert offer_without("respond").respond is None
    assert offer_without("rescue").readable_syntaxes == ()
    assert not offer_without("repair").repairs
    both = Policy(without=frozenset({"nudge", "constrained", "loops"}))
    assert both.disabled_attempts == {"nudged", "constrained"}


def test_without_loop_detection_a_looping_model_is_not_stopped() -> None:
    call, result = ToolCall("a", "get_time", "{}"), tool_result("a", "noon")
    history = (assistant_message("", (call,)), result) * 3
    request = replace(make_request(), messages=(*make_request().messages, *history))
    with_detection = first_request_of(request)
    without_detection = first_request_of(request, Policy(without=frozenset({"loops"})))
    assert len(with_detection.messages) == len(without_detection.messages) + 1
