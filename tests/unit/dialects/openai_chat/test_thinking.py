import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request, ThinkingOptions
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.thinking import fit_effort, fit_thinking, thinking_fields


def read(**fields: JsonValue) -> Request:
    body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return decode_request(json.dump(body))


def request_with(thinking: ThinkingOptions, **fields: JsonValue) -> Request:
    return replace(read(**fields), thinking=thinking)


QWEN = ("low", "medium", "xhigh")


@pytest.mark.parametrize(
    ("wanted", "word"), [("none", "low"), ("high", "xhigh"), ("max", "xhigh"), ("low", "low")]
)
def test_a_reasoning_effort_is_mapped_to_the_nearest_supported_level(
    wanted: str, word: str
) -> None:
    fitted = fit_thinking(read(reasoning_effort=wanted), QWEN, "", {})
    assert json.parse(fitted.fields["reasoning_effort"]) == word
    assert not {"reasoning_effort"} & thinking_fields(fitted).keys()
    fitted = fit_thinking(read(chat_template_kwargs={"reasoning_effort": wanted}), QWEN, "", {})
    assert json.parse(fitted.fields["chat_template_kwargs"]) == {"reasoning_effort": word}
    fitted = fit_thinking(request_with(ThinkingOptions(effort=wanted)), QWEN, "", {})
    assert thinking_fields(fitted) == {"reasoning_effort": word}


@pytest.mark.parametrize("fields", [{}, {"reasoning_effort": "enormous"}])
def test_without_a_known_reasoning_effort_the_request_is_unchanged(fields: JsonObject) -> None:
    request = read(**fields)
    assert fit_thinking(request, QWEN, "strength", {}) == request
    assert fit_thinking(request, (), "", {}) is request
    assert fit_effort(request, QWEN) is request


def test_template_variables_of_the_model_are_merged_with_those_of_the_client() -> None:
    request = request_with(ThinkingOptions(effort="max"), chat_template_kwargs={"language": "de"})
    fitted = fit_thinking(request, ("low", "xhigh"), "strength", {"clear_thinking": False})
    variables = {"clear_thinking": False, "strength": "xhigh", "language": "de"}
    assert thinking_fields(fitted)["chat_template_kwargs"] == variables
    client_request = request_with(ThinkingOptions(), chat_template_kwargs={"clear_thinking": True})
    assert thinking_fields(fit_thinking(client_request, (), "", {"clear_thinking": False})) == {}
