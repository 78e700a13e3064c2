from proxy.context.budget import BudgetMode
from proxy.conversation.workflows import Workflow
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.serving.assembly import policy_of, service_options_of, workflows_of
from proxy.settings import load_settings


def test_what_an_operator_decided_about_guardrails_becomes_a_policy() -> None:
    given = {"mode": "observe", "max_attempts": 2, "strict": True, "max_tool_rounds": 9}
    policy = policy_of(load_settings(flags={"guardrails": given}))
    assert (policy.mode, policy.attempts, policy.is_strict) == (Mode.OBSERVE, 2, True)
    assert (policy.most_rounds, policy.text_policy) == (9, None)


def test_a_text_policy_counts_only_if_it_was_said() -> None:
    policy = policy_of(load_settings(flags={"guardrails": {"text_policy": "auto"}}))
    assert policy.text_policy is TextPolicy.AUTO


def test_rules_are_kept_by_model() -> None:
    flags = {"workflows": {"tiny": {"terminal_tools": ["done"]}}}
    assert workflows_of(load_settings(flags=flags)) == {"tiny": Workflow((), (), ("done",))}


def test_services_are_made_as_the_settings_say() -> None:
    flags = {"server": {"max_waiting": 3}, "backend": {"parallel_requests": 2}}
    options = service_options_of(load_settings(flags=flags))
    assert (options.max_waiting, options.parallel) == (3, 2)
    assert options.context.budget is BudgetMode.BACKEND
    assert options.profiles != ()
