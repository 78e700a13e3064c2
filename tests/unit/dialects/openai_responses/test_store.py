import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.dialect import Problem
from proxy.dialects.openai_responses.store import (
    ResponseStore,
    StoredResponse,
    cancel,
    delete,
    id_of,
    list_inputs,
    not_offered,
    retrieve,
)
from tests.fakes.responses import make_store


def test_the_items_of_a_stored_response_are_its_input_and_output() -> None:
    response = StoredResponse("resp_1", [b"{}", b"[]"], [b'"x"'], b"whole")
    assert response.items == [b"{}", b"[]", b'"x"']
    assert response.size == 1024 + 5 + 2 + 2 + 3


@pytest.mark.parametrize(
    ("item", "item_id"), [(b'{"id":"msg_1"}', "msg_1"), (b"{}", ""), (b'{"id":1}', ""), (b"[]", "")]
)
def test_the_id_of_an_item_without_a_string_id_is_empty(item: bytes, item_id: str) -> None:
    assert id_of(item) == item_id


def item(name: str, role: str = "user", **members: JsonValue) -> bytes:
    return json.dump({"id": name, "role": role, "content": name, **members})


def stored() -> ResponseStore:
    store = make_store()
    store.keep("me", StoredResponse("one", [item("a")], [item("b", "assistant")], b'{"id":"one"}'))
    call = b'{"id":"c","type":"function_call"}'
    store.keep("me", StoredResponse("two", [call, item("d")], [item("e")], b"{}", "one"))
    return store


def listed(**query: str) -> JsonObject:
    answer = list_inputs(stored(), "me", "two", query)
    assert isinstance(answer, bytes)
    value = json.parse(answer)
    assert isinstance(value, dict)
    return value


def ids(page: JsonObject) -> list[JsonValue]:
    assert isinstance(page["data"], list)
    return [item["id"] for item in page["data"] if isinstance(item, dict)]


def test_a_response_is_returned_unchanged_but_not_as_a_stream() -> None:
    assert retrieve(stored(), "me", "one", {}) == b'{"id":"one"}'
    refused = retrieve(stored(), "me", "one", {"stream": "true"})
    assert isinstance(refused, Problem)
    assert (refused.status, refused.param) == (400, "stream")


def test_a_deleted_response_cannot_be_retrieved_or_deleted_again() -> None:
    store = stored()
    gone = delete(store, "me", "one", {})
    assert gone == b'{"id":"one","object":"response","deleted":true}'
    for answer in (delete(store, "me", "one", {}), retrieve(store, "me", "one", {})):
        assert isinstance(answer, Problem)
        assert answer.status == 404


@pytest.mark.parametrize("store", [None, stored()])
def test_missing_responses_and_responses_of_other_keys_are_not_found(
    store: ResponseStore | None,
) -> None:
    for answer in (
        retrieve(store, "you", "one", {}),
        delete(store, "you", "one", {}),
        list_inputs(store, "you", "one", {}),
    ):
        assert isinstance(answer, Problem)
        assert (answer.status, answer.kind) == (404, "invalid_request_error")


def test_all_input_items_of_a_response_are_listed_latest_first() -> None:
    page = listed()
    assert ids(page) == ["d", "c", "b", "a"]
    assert (page["object"], page["first_id"], page["last_id"]) == ("list", "d", "a")
    assert page["has_more"] is False


def test_input_items_are_listed_in_pages() -> None:
    page = listed(order="asc", limit="2")
    assert (ids(page), page["has_more"]) == (["a", "b"], True)
    page = listed(order="asc", limit="2", after="b")
    assert (ids(page), page["has_more"]) == (["c", "d"], False)
    page = listed(order="asc", after="d")
    assert (page["data"], page["first_id"], page["last_id"]) == ([], None, None)


def test_listed_messages_have_a_type_and_content_parts() -> None:
    assert listed(order="asc")["data"] == [
        {
            "type": "message",
            "id": "a",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}],
        },
        {
            "type": "message",
            "id": "b",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "b"}],
        },
        {"type": "function_call", "id": "c"},
        {
            "type": "message",
            "id": "d",
            "role": "user",
            "content": [{"type": "input_text", "text": "d"}],
        },
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "101"),
        ("limit", "x"),
        ("limit", "9" * 5000),
        ("order", "up"),
        ("after", "z"),
    ],
)
def test_the_error_for_an_invalid_page_parameter_names_it(name: str, value: str) -> None:
    answer = list_inputs(stored(), "me", "two", {name: value})
    assert isinstance(answer, Problem)
    assert (answer.status, answer.param) == (400, name)


def test_unsupported_operations_are_refused_with_a_remedy() -> None:
    assert cancel("one").status == 400
    assert "background" in cancel("one").message
    assert not_offered("/v1/conversations").status == 404
    assert "previous_response_id" in not_offered("/v1/responses/compact").message
