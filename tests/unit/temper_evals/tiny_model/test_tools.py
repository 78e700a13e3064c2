import random
import string

from proxy.conversation.json import JsonObject
from proxy.guardrails.schemas.schema import compile_schema
from temper_evals.tiny_model.tools import CHAINS, HELD_OUT_TOOLS, TOOLS, composed_tool, tool_named
from temper_evals.tiny_model.values import ValueDraw

EVERY = (*TOOLS, *HELD_OUT_TOOLS)


def test_every_wording_names_every_value_and_no_other() -> None:
    for tool in EVERY:
        for wording in tool.wordings:
            named = {field for _, field, _, _ in string.Formatter().parse(wording) if field}
            assert named == {*tool.parameters}


def test_drawn_arguments_fit_the_schema_and_others_do_not() -> None:
    values = ValueDraw(random.Random(3))
    for tool in EVERY:
        function = tool.describe()["function"]
        assert isinstance(function, dict)
        parameters = function["parameters"]
        assert isinstance(parameters, dict)
        schema = compile_schema(parameters)
        arguments: JsonObject = {name: values.value(kind) for name, kind in tool.parameters.items()}
        assert schema.is_valid(arguments)
        assert not schema.is_valid({**arguments, "more": 1})
        assert not schema.is_valid({})


def test_the_second_tool_of_a_chain_takes_what_the_first_returns() -> None:
    for chain in CHAINS:
        (kind,) = tool_named(chain.second).parameters.values()
        assert kind == tool_named(chain.first).result


def test_tools_put_together_are_named_in_their_wish_and_some_are_held_out() -> None:
    shown, kept = (
        [composed_tool(random.Random(seed), held_out=held_out) for seed in range(100)]
        for held_out in (False, True)
    )
    assert not {one.name for one in shown} & {one.name for one in kept}
    for tool in shown:
        verb, _, noun = tool.name.partition("_")
        assert f"{verb} the {noun}" in tool.wordings[0]
