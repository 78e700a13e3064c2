import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import pytest
from pydantic import BaseModel

from proxy.conversation.json import JsonObject
from proxy.tools.schema import WrongArguments
from proxy.tools.signature import Function, context_parameter, description_of, name_of, signature_of

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")

WORDS = {"city": "Where, by its name.", "days": "How many days."}


class Context(Generic[T]):
    """The context of a function."""


class Place(BaseModel):
    """A place on earth."""

    city: str


def google_style(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is that of tomorrow.

    Args:
        city: Where,
            by its name.
        days: How many days.

    Returns:
        nothing
    """


def numpy_style(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is that of tomorrow.

    Parameters
    ----------
    city : str
        Where,
        by its name.
    days : int
        How many days.
    """


def sphinx(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is that of tomorrow.

    :param city: Where,
        by its name.
    :param days: How many days.
    :returns: nothing
    """


def members(parameters: JsonObject) -> JsonObject:
    properties = parameters["properties"]
    assert isinstance(properties, dict)
    return properties


@pytest.mark.parametrize("function", [google_style, numpy_style, sphinx])
def test_a_docstring_of_any_style_describes_the_tool_and_its_parameters(function: Function) -> None:
    signature = signature_of(function, Context)

    assert signature.description == "Tell the weather.\n\nIt is that of tomorrow."
    assert members(signature.parameters) == {
        "city": {"type": "string", "description": WORDS["city"]},
        "days": {"type": "integer", "default": 1, "description": WORDS["days"]},
    }
    assert signature.parameters["required"] == ["city"]
    assert signature.parameters["additionalProperties"] is False


def test_a_docstring_of_no_known_style_is_the_description() -> None:
    def f(city: str) -> None:
        """Tell it.

        Raises:
        """

    signature = signature_of(f, Context)

    assert signature.description == "Tell it.\n\nRaises:"
    assert members(signature.parameters) == {"city": {"type": "string"}}


def test_a_description_ends_at_the_parameter_section() -> None:
    def f(city: str) -> None:
        """Tell it.

        Args:
            city: Where.
        """

    assert signature_of(f, Context).description == "Tell it."


def test_a_first_parameter_of_type_context_is_not_in_the_schema() -> None:
    def bare(it: Context, city: str) -> None:  # type: ignore[type-arg]
        """Take a context of anything."""

    def of_text(it: "Context[str]", city: str) -> None:
        """Take a context of text."""

    for function in (bare, of_text):
        signature = signature_of(function, Context)
        assert signature.context == "it"
        assert [*members(signature.parameters)] == ["city"]
    assert signature_of(google_style, Context).context is None


def test_a_function_without_parameters_has_an_empty_object_schema() -> None:
    def now() -> None: ...

    signature = signature_of(now, Context)

    assert context_parameter(now, Context) is None
    assert signature.description == ""
    assert signature.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
    }


def test_a_parameter_without_a_hint_accepts_any_value() -> None:
    def f(anything) -> None: ...  # type: ignore[no-untyped-def]

    assert members(signature_of(f, Context).parameters) == {"anything": {}}


def test_a_return_type_that_cannot_be_resolved_is_ignored() -> None:
    def f(city: str) -> "Decimal": ...  # type: ignore[empty-body]

    assert [*members(signature_of(f, Context).parameters)] == ["city"]


class Weather:
    """Reports the weather."""

    def __call__(self, city: "Place", days: int = 1) -> str:
        """Report it."""
        return f"{city.city} {days}"

    def of(self, city: str) -> str:
        """Report the weather of a city."""
        return city


def endless(*cities: str) -> None: ...
def free(**cities: str) -> None: ...
def positional(city: str, /) -> None: ...
def unresolvable(price: "Decimal") -> None: ...
def late_context(city: str, it: Context[str]) -> None: ...
def no_schema(price: Callable[[int], int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (endless, r"endless\(\) cannot be a tool: \*cities: str takes any number of arguments"),
        (free, r"free\(\) cannot be a tool: \*\*cities: str takes any number"),
        (positional, r"positional\(\) cannot be a tool: city is positional-only"),
        (unresolvable, r"unresolvable\(\) .*: the hint of price cannot be resolved: .*'Decimal'"),
        (late_context, r"late_context\(\) cannot be a tool: it, the context, must come first"),
        (Weather.of, r"of\(\) cannot be a tool: self is missing: use the method of"),
        (no_schema, r"no_schema\(\) cannot be a tool: Cannot generate a JsonSchema"),
        (max, r"max\(\) cannot be a tool: no signature found"),
    ],
)
def test_a_function_that_cannot_be_called_with_an_object_is_refused(
    function: Function, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        signature_of(function, Context)


def test_methods_callable_objects_and_partial_functions_can_be_tools() -> None:
    weather = Weather()
    partly = functools.partial(google_style, days=3)

    assert [*members(signature_of(weather, Context).parameters)] == ["city", "days"]
    assert [*members(signature_of(weather.of, Context).parameters)] == ["city"]
    assert [name_of(function) for function in (weather, weather.of, partly)] == [
        "Weather",
        "of",
        "google_style",
    ]
    assert description_of(weather) == "Reports the weather."
    assert description_of(partly).startswith("Tell the weather.")


def test_bound_arguments_of_a_partial_function_are_hidden_from_the_model() -> None:
    def search(context: Context[None], words: str, key: str) -> None: ...

    keyed = signature_of(functools.partial(search, key="s3cret"), Context)
    assert [*members(keyed.parameters)] == ["words"]
    assert "s3cret" not in repr(keyed.parameters)
    assert keyed.context == "context"
    placed = signature_of(functools.partial(search, context=Context[None](), key="s3cret"), Context)
    assert (placed.context, [*members(placed.parameters)]) == (None, ["words"])
    with pytest.raises(WrongArguments, match="/key"):
        keyed.read('{"words":"", "key": ""}')


def test_the_hints_of_a_decorated_function_are_those_of_the_original() -> None:
    @functools.wraps(unresolvable)
    def wrapped(price: int) -> None: ...

    assert name_of(wrapped) == "unresolvable"
    with pytest.raises(TypeError, match="the hint of price"):
        signature_of(wrapped, Context)
