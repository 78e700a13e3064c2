import pytest

from proxy.backends.probing import PROBES, documents_in, write_probe
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.engine_answers import TRANSFORMERS, VLLM, recorded

HONOURED = {
    # with a tool parser `required` binds the envelope and no arguments
    VLLM: {*PROBES} - {"required_arguments", "white_space"},
    TRANSFORMERS: {"usage"},
}


@pytest.mark.parametrize("engine", HONOURED)
def test_probes_judge_recorded_answers_of_real_engines(engine: str) -> None:
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
def test_an_empty_answer_proves_nothing(name: str, body: bytes) -> None:
    assert not PROBES[name].shows(documents_in(body))


def test_a_good_model_that_nothing_binds_proves_nothing() -> None:
    """The model follows the instruction, not the constraint."""
    function: JsonObject = {"name": "pick", "arguments": '{"code": "hello"}'}
    message: JsonObject = {"content": "Hello!", "tool_calls": [{"function": function}]}
    answer: list[JsonObject] = [{"choices": [{"message": message}]}]
    bound = ("required_arguments", "strict", "schema", "schema_beside_tools", "grammar")
    assert not any(PROBES[name].shows(answer) for name in bound)


def test_a_probe_names_its_model_and_requests_little() -> None:
    for probe in PROBES.values():
        body = json.parse(write_probe(probe, "m"))
        assert isinstance(body, dict)
        assert body["model"] == "m"
        assert isinstance(most := body["max_tokens"], int)
        assert most <= 48
