import pytest

from proxy.backends.probing import PROBES, documents_in, write_probe
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.engine_answers import TRANSFORMERS, VLLM, recorded

HONOURED = {
    # with a tool parser, `required` constrains the form of a call, but not its arguments
    VLLM: {*PROBES} - {"required_arguments", "white_space"},
    TRANSFORMERS: {"usage"},
}


@pytest.mark.parametrize("engine", HONOURED)
def test_probes_classify_recorded_responses_of_real_engines(engine: str) -> None:
    answers = recorded(engine)
    assert answers.keys() == PROBES.keys()
    shown = {
        name
        for name, answer in answers.items()
        if answer.is_success and PROBES[name].shows(documents_in(answer.content))
    }
    assert shown == HONOURED[engine]


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"data: [DONE]\n\n", b'{"choices": [3]}', b"nonsense"]
)
def test_an_empty_or_invalid_response_does_not_pass_a_probe(name: str, body: bytes) -> None:
    assert not PROBES[name].shows(documents_in(body))


def test_each_probe_fails_if_the_response_obeys_the_prompt_instead_of_the_constraint() -> None:
    """The answer satisfies the prompt of each probe, and so violates its constraint."""
    function: JsonObject = {"name": "pick", "arguments": '{"code": "hello"}'}
    message: JsonObject = {"content": "Hello!", "tool_calls": [{"function": function}]}
    answer: list[JsonObject] = [{"choices": [{"message": message}]}]
    bound = ("required_arguments", "strict", "schema", "schema_beside_tools", "grammar")
    assert not any(PROBES[name].shows(answer) for name in bound)


def test_a_probe_names_the_model_and_requests_few_tokens() -> None:
    for probe in PROBES.values():
        body = json.parse(write_probe(probe, "m"))
        assert isinstance(body, dict)
        assert body["model"] == "m"
        assert isinstance(most := body["max_tokens"], int)
        assert most <= 48
