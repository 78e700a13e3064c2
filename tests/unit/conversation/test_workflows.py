import pytest

from proxy.conversation.workflows import Prerequisite, Workflow, contradictions

RULES = Workflow(("read",), (Prerequisite("edit", "read", "path"),), ("finish",))


def test_satisfiable_rules_have_no_contradictions() -> None:
    assert list(contradictions(RULES)) == []
    both = (Prerequisite("edit", "read"), Prerequisite("edit", "ask"), Prerequisite("ask", "read"))
    assert list(contradictions(Workflow((), both))) == []


def test_each_tool_of_the_rules_is_listed_with_its_path() -> None:
    assert list(RULES.tools()) == [
        ("required_steps.0", "read"),
        ("prerequisites.0.tool", "edit"),
        ("prerequisites.0.needs", "read"),
        ("terminal_tools.0", "finish"),
    ]


@pytest.mark.parametrize(
    ("rules", "path", "problem"),
    [
        (Workflow(("a", "b", "a")), "required_steps.2", "listed twice"),
        (Workflow((), (Prerequisite("a", "b"),) * 2), "prerequisites.1", "listed twice"),
        (Workflow((), (), ("a", "a")), "terminal_tools.1", "listed twice"),
        (
            Workflow(("a", "b"), (), ("b",)),
            "required_steps.1",
            "'b' can never be called, because b needs b",
        ),
        (
            Workflow((), (Prerequisite("a", "a"),)),
            "prerequisites.0.tool",
            "'a' can never be called, because a needs a",
        ),
        (
            Workflow((), (Prerequisite("x", "a"), Prerequisite("a", "b"), Prerequisite("b", "a"))),
            "prerequisites.1.tool",
            "'a' can never be called, because a needs b needs a",
        ),
        (
            Workflow(("step",), (Prerequisite("step", "end"),), ("end",)),
            "required_steps.0",
            "'step' can never be called, because step needs end needs step",
        ),
    ],
)
def test_unsatisfiable_rules_are_reported_with_their_path(
    rules: Workflow, path: str, problem: str
) -> None:
    ((where, what),) = contradictions(rules)
    assert (where, problem in what) == (path, True)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("Workflow('look')", r"required_steps must be a tuple, not 'look': write required_steps="),
        ("Workflow((1,))", r"required_steps must be a tuple of tool names, not \(1,\)"),
        ("Workflow(None)", "required_steps must be a tuple of tool names, not None"),
        ("Workflow((), Prerequisite('a', 'b'))", "prerequisites must be a tuple, not Prerequisite"),
        ("Workflow((), ('a',))", r"prerequisites must be a tuple of Prerequisite\(tool, needs\)"),
        ("Workflow((), (), 'end')", "terminal_tools must be a tuple, not 'end'"),
    ],
)
def test_malformed_rules_raise_type_error_with_the_expected_form(rules: str, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        eval(rules, globals())  # noqa: S307 - as code, a type checker would reject the rules
