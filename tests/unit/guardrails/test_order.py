from msgspec.structs import replace

from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.order import is_free, object_to
from proxy.guardrails.transcript import CompletedCall, Loop
from proxy.guardrails.verdict import Defect

OFFER = OfferedTools((), TextPolicy.ACCEPT, ())
RULES = Workflow(("read",), (Prerequisite("edit", "read"),), ("done",))
READ = CompletedCall("read", {}, "", has_failed=False)


def objection(name: str, offer: OfferedTools, insistence: int = 0) -> tuple[Defect, str]:
    found = object_to(name, {}, offer, insistence=insistence)
    assert found is not None
    return found


def test_without_rules_everything_is_allowed() -> None:
    assert object_to("anything", {}, OFFER) is None


def test_the_call_of_a_loop_is_objected_to_and_no_other() -> None:
    offer = replace(OFFER, loop=Loop("look", {}, 3))
    assert objection("look", offer)[0] is Defect.LOOP
    assert "last 3 calls of look" in objection("look", offer)[1]
    assert object_to("look", {"x": 1}, offer) is None
    assert object_to("go", {}, offer) is None


def test_prerequisites_and_required_steps_come_first() -> None:
    offer = replace(OFFER, workflow=RULES)
    for name in ("edit", "done"):
        assert objection(name, offer)[0] is Defect.STEP_MISSING
        assert "read" in objection(name, offer)[1]
        assert object_to(name, {}, replace(offer, completed=(READ,))) is None
    assert object_to("read", {}, offer) is None


def test_objections_become_firmer() -> None:
    offer = replace(OFFER, workflow=RULES)
    problems = [objection("done", offer, insistence)[1] for insistence in range(4)]
    assert len(set(problems)) == 3
    assert problems[2] == problems[3]
    assert "Stop" in problems[2]


def test_a_call_is_free_if_no_rule_can_object_to_it_whatever_its_arguments() -> None:
    offer = replace(OFFER, workflow=RULES, loop=Loop("look", {}, 3))
    assert [name for name in ("read", "edit", "done", "look", "go") if is_free(name, offer)] == [
        "read",
        "go",
    ]
    assert is_free("done", replace(offer, completed=(READ,)))
