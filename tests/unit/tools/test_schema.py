import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial
from typing import Annotated, Literal, NotRequired
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel, Field, RootModel, field_validator
from typing_extensions import TypedDict

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from proxy.tools.schema import WrongArguments, read_by_schema
from proxy.tools.signature import Function, Signature, signature_of
from tests.examples import examples
from tests.unit.tools.schema_values import values


class Context:
    """An unused context."""


class Unit(Enum):
    """A unit of temperature."""

    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(BaseModel):
    """A place on earth."""

    title: str
    at: tuple[float, float] | None = None


class Node(BaseModel):
    """A tree."""

    name: str
    children: list["Node"] = Field(default=[], description="Those below.")


class Filter(TypedDict):
    """A search filter."""

    word: str
    since: NotRequired[date]


@dataclass
class Range:
    """A range of values."""

    low: int
    high: int = 9


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]


Tags = RootModel[list[str]]


def plain(text: str, count: int, share: float = 0.5, *, is_on: bool = True) -> None: ...
def chosen(unit: Unit, size: Literal["s", "m", 3], none: str | None = None) -> None: ...
def nested(city: Place, places: dict[str, list[Place]], range_: Range) -> None: ...
def recursive(tree: Node, words: Filter) -> None: ...
def timed(at: datetime, on: date, key: UUID, these: set[int]) -> None: ...
def limited(count: Annotated[int, Field(ge=1, le=9, description="How many.")] = 3) -> None: ...
def odd(schema: str, json: int, model_config: bool, _x: float, copy: None, p0: str) -> None: ...
def one_model(city: Place) -> None: ...
def one_recursive_model(tree: Node) -> None: ...
def tagged(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...
def rooted(tags: Tags) -> None: ...
def by_field(count: int = Field(3, ge=1, description="How many."), name: str = "n") -> None: ...
def made(names: Annotated[list[str], Field(default_factory=list)]) -> None: ...
def aliased(from_: Annotated[str, Field(alias="from")]) -> None: ...


FUNCTIONS = [
    *(plain, chosen, nested, recursive, timed, limited, odd, one_model, one_recursive_model),
    *(tagged, rooted, by_field, made, aliased),
]


SETS = {"these": [{"z", "y", "x"}]}


def signature(function: Function) -> Signature:
    return signature_of(function, Context)


def properties(function: Function) -> JsonObject:
    properties_ = signature(function).parameters["properties"]
    assert isinstance(properties_, dict)
    return properties_


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_arguments_that_satisfy_the_schema_are_accepted_by_the_function(
    function: Function, data: st.DataObject
) -> None:
    parameters = signature(function)
    value = data.draw(values(parameters.parameters))

    Draft202012Validator(parameters.parameters).validate(value)
    function(**parameters.read(json.dump_text(value)))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_a_schema_is_an_object_without_titles_and_additional_properties(function: Function) -> None:
    parameters = signature(function).parameters

    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert '"title":"' not in json.dump_text(parameters)


def test_values_have_the_types_of_their_hints() -> None:
    read = signature(timed).read

    assert read(
        '{"at":"2026-01-02T03:04:05Z","on":"2026-01-02","these":[1,2,2],'
        '"key":"00000000-0000-0000-0000-000000000001"}'
    ) == {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "on": date(2026, 1, 2),
        "key": UUID(int=1),
        "these": {1, 2},
    }
    assert signature(chosen).read('{"unit":"f","size":3}') == {"unit": Unit.FAHRENHEIT, "size": 3}
    assert signature(aliased).read('{"from":"here"}') == {"from_": "here"}


def test_parameters_may_be_named_like_attributes_of_pydantic_models() -> None:
    read = signature(odd).read
    given: JsonObject = {
        "schema": "s",
        "json": 1,
        "model_config": True,
        "_x": 1.5,
        "copy": None,
        "p0": "p",
    }

    assert read(json.dump_text(given)) == given
    assert [*properties(odd)] == [*given]


def test_the_schema_of_a_single_model_parameter_is_that_of_the_model() -> None:
    assert [*properties(one_model)] == ["title", "at"]
    assert signature(one_model).read('{"title":"Oslo"}') == {"city": Place(title="Oslo")}

    tree = signature(one_recursive_model)
    assert tree.parameters["properties"] == {
        "name": {"type": "string"},
        "children": {
            "type": "array",
            "items": {"$ref": "#/$defs/Node"},
            "default": [],
            "description": "Those below.",
        },
    }
    assert isinstance(tree.parameters["$defs"], dict)
    assert "$ref" not in tree.parameters


def test_a_pydantic_model_is_a_property_if_it_has_a_default_or_is_not_the_only_parameter() -> None:
    def with_default(city: Place = Place(title="Oslo")) -> None: ...  # noqa: B008

    assert [*properties(nested)] == ["city", "places", "range_"]
    assert [*properties(with_default)] == ["city"]
    assert [*properties(rooted)] == ["tags"]


def test_constraints_of_pydantic_fields_are_in_the_schema() -> None:
    assert properties(limited)["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 3,
        "description": "How many.",
    }
    assert properties(by_field)["count"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": "How many.",
    }
    assert signature(by_field).read("{}") == {"count": 3}
    assert signature(made).read("{}") == {"names": []}


def test_a_default_is_in_the_schema_and_not_in_the_parsed_arguments() -> None:
    anything = object()

    def f(a: int = 1, b: object = anything, c: dict[str, list[set[str]]] = SETS) -> object:
        return b

    assert properties(f)["a"] == {"type": "integer", "default": 1}
    assert properties(f)["b"] == {}
    assert '"default":{"these":[["x","y","z"]]}' in json.dump_text(properties(f))
    assert signature(f).read("") == {}


@pytest.mark.parametrize(
    ("function", "arguments", "problem"),
    [
        (plain, '{"text":7,"count":1}', "/text: Input should be a valid string"),
        (plain, '{"text":"secret"}', "/count: Field required"),
        (plain, '{"text":"a","count":1,"x":"secret"}', "/x: Extra inputs are not permitted"),
        (plain, '{"text":', "the arguments: Invalid JSON: EOF while parsing"),
        (one_model, '{"title":7}', "/title: Input should be a valid string"),
        (tagged, '{"pet":{"kind":"secret"}}', "/pet: Input should have one of the tags 'cat', 'd"),
    ],
)
def test_the_error_for_invalid_arguments_names_the_path_and_not_the_value(
    function: Function, arguments: str, problem: str
) -> None:
    with pytest.raises(WrongArguments) as refused:
        signature(function).read(arguments)

    assert str(refused.value).startswith(problem)
    assert "secret" not in str(refused.value)


def test_at_most_5_errors_of_arguments_are_reported() -> None:
    def f(a: int, b: int, c: int, d: int, e: int, g: int, h: int) -> None: ...

    with pytest.raises(WrongArguments) as refused:
        signature(f).read("{}")

    assert str(refused.value).count("Field required") == 5


def test_the_message_of_a_custom_validator_is_reported() -> None:
    class Even(BaseModel):
        """A number that is even."""

        number: int

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            """Refuse odd numbers."""
            if number % 2:
                raise ValueError("choose an even number")
            return number

    def f(even: Even) -> None: ...

    with pytest.raises(WrongArguments, match=r"^/number: Value error, choose an even number$"):
        signature(f).read('{"number":3}')


OWN = Tool("own", {"type": "object", "properties": {"n": {"type": "integer"}}}, b"")


def test_arguments_are_validated_against_a_custom_schema() -> None:
    read = partial(read_by_schema, OWN)

    assert read('{"n":1,"m":"x"}') == {"n": 1, "m": "x"}
    assert read("") == {}
    with pytest.raises(WrongArguments, match=r"^/n: expected integer$"):
        read('{"n":"secret"}')
    with pytest.raises(WrongArguments, match="JSON"):
        read("[")


PROCESS = """
from proxy.conversation import json
from proxy.tools.signature import signature_of
from enum import Enum
from functools import partial
from typing import Literal
class E(Enum):
    A = "a"
    B = "b"
def f(
    names: frozenset[str] = frozenset(["x", "y", "z", "w"]),
    e: dict[str, list[set[E]]] = {"e": [{E.B, E.A}]},
    o: Literal["p", "q"] = "p",
):
    "Do it."
print(json.dump_text(signature_of(f, int).parameters))
"""


@pytest.mark.deep
def test_a_schema_has_the_same_bytes_in_every_process() -> None:
    schemas = {
        subprocess.run(
            (sys.executable, "-c", PROCESS),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }

    (schema,) = schemas
    assert b'"default":["w","x","y","z"]' in schema
    assert b'"default":{"e":[["a","b"]]}' in schema
