from proxy.conversation import json
from proxy.conversation.messages import user_message
from proxy.conversation.requests import Parsing
from proxy.guardrails.model_quirks import Traits
from proxy.guardrails.retry import FIRST, Attempt, AttemptKind
from proxy.inference.prepared import ANSWER_FORM, Prepared
from proxy.inference.prompt_format import PromptFormat
from tests.fakes.playbook import CLOCK, WEATHER, make_request

HELLO = user_message("Hi")
NUDGE = user_message("Call a tool.")
PREPARED = Prepared(
    make_request(HELLO),
    (HELLO,),
    PromptFormat((WEATHER, CLOCK)),
    None,
    omits=frozenset((ANSWER_FORM,)),
    traits=Traits(resets_state=True, calls_in_parallel=False),
)


def test_a_nudge_goes_behind_the_conversation() -> None:
    question = PREPARED.question(FIRST, (NUDGE,), None)
    assert question.messages == (HELLO, NUDGE)
    assert question.tools == (WEATHER, CLOCK)
    assert question.omits == {ANSWER_FORM}
    assert question.calls_singly
    assert not question.resets_cache


def test_a_later_attempt_may_be_read_by_us_constrained_and_bounded() -> None:
    attempt = Attempt(AttemptKind.CONSTRAINED, Parsing.OURS)
    question = PREPARED.question(attempt, (), {"type": "object"}, 512)
    assert question.parsing is Parsing.OURS
    assert question.schema == {"type": "object"}
    assert question.resets_cache
    assert question.request.max_tokens == 512
    assert question.request.fields["max_tokens"] == json.dump(512)


def test_an_answer_is_asked_for_in_the_clients_own_form() -> None:
    assert ANSWER_FORM not in PREPARED.question(Attempt(AttemptKind.ANSWER), (), None).omits
