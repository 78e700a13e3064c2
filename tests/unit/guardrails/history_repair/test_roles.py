import pytest

from proxy.conversation.json import JsonObject
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.notes import SYSTEM_NOTE
from proxy.guardrails.history_repair.roles import fit_roles
from proxy.guardrails.model_quirks import SystemRole, Template
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, written

NO_DEVELOPER = Template(has_developer=False)
FIRST = Template(system=SystemRole.FIRST)
NOWHERE = Template(system=SystemRole.NOWHERE)
TURNS = Template(alternates=True)
STRICT = Template(has_developer=False, system=SystemRole.NOWHERE, alternates=True)

S, D = said("system", "s"), said("developer", "d")
D_AS_S = said("system", "d")
U, A = said("user", "u"), said("assistant", "a")
NOTED = said("user", f"{SYSTEM_NOTE}\n\ns")

PLAYBOOK: list[tuple[Template, list[JsonObject], list[JsonObject], list[str]]] = [
    (Template(), [S, D, S, U, U, A, A, S], [S, D, S, U, U, A, A, S], []),
    (
        NO_DEVELOPER,
        [D, U, D],
        [D_AS_S, U, D_AS_S],
        ["developer_role"] * 2,
    ),
    (FIRST, [], [], []),
    (FIRST, [S, U, A], [S, U, A], []),
    (FIRST, [S, S], [said("system", "s\n\ns")], ["system_role"]),
    (FIRST, [S, S, U, S, A], [said("system", "s\n\ns"), U, NOTED, A], ["system_role"] * 2),
    (FIRST, [U, S], [U, NOTED], ["system_role"]),
    (NOWHERE, [U, A], [U, A], []),
    (NOWHERE, [S, U, A], [said("user", "s\n\nu"), A], ["system_role"]),
    (NOWHERE, [S, S, U, S], [said("user", "s\n\ns\n\nu"), NOTED], ["system_role"] * 2),
    (NOWHERE, [S], [said("user", "s")], ["system_role"]),
    (NOWHERE, [S, A, U], [said("user", "s"), A, U], ["system_role"]),
    (TURNS, [U, A, U, A], [U, A, U, A], []),
    (
        TURNS,
        [U, U, U, A, A],
        [said("user", "u\n\nu\n\nu"), said("assistant", "a\n\na")],
        ["alternation"] * 2,
    ),
    (TURNS, [S, S, U], [S, S, U], []),
    (
        TURNS,
        [U, A, called(call("c")), result("c"), result("d"), A],
        [U, called(call("c"), content="a"), result("c"), result("d"), A],
        ["alternation"],
    ),
    (TURNS, [called(call("c")), A], [called(call("c")), A], []),
    (
        STRICT,
        [D, U, S, U],
        [said("user", f"d\n\nu\n\n{SYSTEM_NOTE}\n\ns\n\nu")],
        ["developer_role", "system_role", "system_role", "alternation"],
    ),
]


@pytest.mark.parametrize(("template", "came", "went", "facts"), PLAYBOOK)
def test_what_came_in_and_what_went_out(
    template: Template, came: list[JsonObject], went: list[JsonObject], facts: list[str]
) -> None:
    reported: list[Fact] = []
    given = history(*came)
    healed = fit_roles(given, template, reported)
    assert written(healed) == went
    assert reported == [Healed(fact) for fact in facts]
    assert facts or all(one is other for one, other in zip(healed, given, strict=True))


@pytest.mark.parametrize("message", [S, U])
def test_the_work_is_linear_in_the_history(message: JsonObject) -> None:
    messages = history(message)
    assert is_linear(
        lambda text: fit_roles(messages * len(text), STRICT, []), lambda size: "x" * size, 500
    )
