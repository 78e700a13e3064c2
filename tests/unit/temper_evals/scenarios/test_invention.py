import random

import jsonschema_rs
import pytest

from temper_evals.scenarios.catalogue import TOOLS
from temper_evals.scenarios.invention import invent_arguments, invent_value
from temper_evals.scenarios.worlds import schema_of


@pytest.mark.parametrize("name", TOOLS)
def test_invented_arguments_satisfy_the_schema(name: str) -> None:
    schema = schema_of((TOOLS[name],), name)
    assert schema is not None
    for seed in range(20):
        arguments = invent_arguments(schema, random.Random(seed))
        assert jsonschema_rs.validator_for(schema).is_valid(arguments)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "boolean"}, bool),
        ({"type": "array"}, list),
        ({"type": "object"}, dict),
        ({}, str),
        ({"properties": 3}, str),
    ],
)
def test_invent_value_returns_a_value_of_the_type_in_the_schema(
    schema: dict[str, str], kind: type
) -> None:
    assert isinstance(invent_value({**schema}, random.Random(1)), kind)
