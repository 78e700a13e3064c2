import pytest

from proxy.settings.models import ServedModel, Swapping, contradictions

FILE: dict[str, object] = {"path": "a.gguf"}
URL: dict[str, object] = {"url": "http://127.0.0.1:1"}


def problems_of(memory: int = 0, **models: dict[str, object]) -> list[tuple[str, str]]:
    made = {name: ServedModel.model_validate(model) for name, model in models.items()}
    wrong = contradictions(made, Swapping(memory_mb=memory))
    return [(names[0], problem) for names, problem in wrong]


def test_a_model_with_a_file_and_a_model_with_a_url_can_be_combined() -> None:
    assert problems_of(9, a={**FILE, "aliases": ["c"], "port": 1, "memory_mb": 9}, b=URL) == []
    assert problems_of(a=FILE, b=FILE) == []


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ({}, "models.a.path", "or a running server with models.a.url"),
        ({**FILE, **URL}, "models.a.url", "remove one of the two"),
        ({**FILE, "hf_repo": "o/n"}, "models.a.hf_repo", "set a file or a repository"),
        ({**FILE, "alias": "b"}, "models.a.alias", "use models.a.aliases for more"),
        ({**URL, "ttl_seconds": 5}, "models.a.ttl_seconds", "requires models.a.path"),
        ({**URL, "preload": True}, "models.a.preload", "requires models.a.path"),
        ({**FILE, "memory_mb": 10}, "models.a.memory_mb", "swapping.memory_mb (9)"),
    ],
)
def test_the_error_for_contradictory_settings_of_a_model_names_model_and_setting(
    model: dict[str, object], setting: str, message: str
) -> None:
    ((blamed, problem),) = problems_of(9, a=model)
    assert blamed == setting
    assert message in problem


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 129])
def test_a_model_name_with_invalid_characters_is_refused(name: str) -> None:
    ((blamed, problem),) = problems_of(0, **{name: FILE})
    assert blamed == f"models.{name}"
    assert "letters, digits" in problem


def test_an_alias_that_is_already_used_by_another_model_is_refused() -> None:
    ((blamed, problem),) = problems_of(
        a={**FILE, "aliases": ["x"]}, b={**FILE, "aliases": ["x", "b"]}
    )
    assert blamed == "models.b.aliases"
    assert "'x' is already used by models.a" in problem
    assert [blamed for blamed, _ in problems_of(a={**FILE, "aliases": ["b"]}, b=FILE)] == [
        "models.a.aliases"
    ]


def test_a_port_used_by_two_models_is_refused() -> None:
    ((blamed, problem),) = problems_of(a={**FILE, "port": 8081}, b={**FILE, "port": 8081})
    assert (blamed, "models.a" in problem) == ("models.b.port", True)


def test_more_preloaded_models_than_max_loaded_are_refused() -> None:
    eager = {**FILE, "preload": True}
    assert problems_of(a=eager, b=FILE) == []
    ((blamed, problem),) = problems_of(a=eager, b=eager)
    assert blamed == "models.b.preload"
    assert "only 1 of 2 preloaded models" in problem


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        ("a", None, "must be another model than a"),
        ("models.b", None, "there is no section [models.models.b]; use one of: b"),
        ("b", "a", "leads back to a (a -> b -> a); remove one"),
    ],
)
def test_a_fallback_to_itself_or_to_an_unknown_model_or_in_a_cycle_is_refused(
    a: str, b: str | None, problem: str
) -> None:
    problems = problems_of(a={**URL, "fallback": a}, b={**URL, "fallback": b})
    assert [blamed for blamed, _ in problems] == [
        "models.a.fallback",
        *(["models.b.fallback"] if b else ()),
    ]
    assert problem in problems[0][1]


def test_a_cycle_of_fallbacks_is_reported_only_for_the_models_in_the_cycle() -> None:
    fallbacks = {"a": "b", "b": "c", "c": "b"}
    problems = problems_of(0, **{name: {**URL, "fallback": to} for name, to in fallbacks.items()})
    assert [blamed for blamed, _ in problems] == ["models.b.fallback", "models.c.fallback"]


def test_a_chain_of_fallbacks_without_a_cycle_is_accepted() -> None:
    assert problems_of(a={**URL, "fallback": "b"}, b={**URL, "fallback": "c"}, c=URL) == []


@pytest.mark.parametrize(("most", "is_wrong"), [(0, False), (1, True), (2, False)])
def test_a_managed_fallback_of_a_managed_model_is_refused_with_max_loaded_1(
    most: int, *, is_wrong: bool
) -> None:
    models = {"a": {**FILE, "fallback": "b"}, "b": FILE, "c": {**URL, "fallback": "b"}}
    made = {name: ServedModel.model_validate(model) for name, model in models.items()}
    problems = [*contradictions(made, Swapping(max_loaded=most))]
    assert [names for names, _ in problems] == [
        ("models.a.fallback", "swapping.max_loaded")
    ] * is_wrong
