"""Mends what is broken in an incoming history, and only that, always in the same way.

Untouched messages keep their exact bytes, and what is mended today is mended alike tomorrow, so
the prompt of a growing history only grows. Three things in a later message change how an earlier
one goes out: a late result takes the place of its note, a system message joins those before it,
and a neighbour of the same role joins the message before it where a template demands turns.

`Healed` names what was mended: `arguments`, `type`, `content`, `call_id`, `result_id`,
`unanswered_call`, `orphan_result`, `developer_role`, `system_role`, `alternation`,
`control_token`; for tools `description`.
"""

from proxy.conversation.messages import Message
from proxy.facts import Fact
from proxy.guardrails.history_repair.control_tokens import neutralise
from proxy.guardrails.history_repair.members import heal_members
from proxy.guardrails.history_repair.pairing import pair_calls
from proxy.guardrails.history_repair.roles import fit_roles
from proxy.guardrails.model_quirks import Template

_ANY = Template()


def heal_messages(
    messages: tuple[Message, ...], template: Template = _ANY
) -> tuple[tuple[Message, ...], tuple[Fact, ...]]:
    """Return messages that a backend and its chat template can read, and what was mended."""
    facts: list[Fact] = []
    healed = tuple(heal_members(message, facts) for message in messages)
    healed = pair_calls(healed, facts)
    healed = fit_roles(healed, template, facts)
    healed = neutralise(healed, template.control_tokens, facts)
    return healed, tuple(facts)
