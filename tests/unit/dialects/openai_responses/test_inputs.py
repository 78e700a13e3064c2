import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.openai_responses.inputs import Inputs, identified, read_inputs
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.dialects.raw_json import nodes_in
from proxy.errors import InvalidRequest, PreviousResponseUnknown
from tests.fakes.responses import make_store

EARLIER = StoredResponse("resp_1", [b'{"id":"a","role":"user"}'], [b'{"id":"b"}'], b"{}")


def read(store: ResponseStore | None, **fields: JsonValue) -> Inputs:
    return read_inputs(nodes_in(fields, json.dump(fields)), store, "me")


def stored() -> ResponseStore:
    store = make_store()
    store.keep("me", EARLIER)
    return store


def test_a_string_is_one_item() -> None:
    inputs = read(None, input="Hi")
    assert inputs.own == [b'{"type":"message","role":"user","content":"Hi"}']
    assert [node.source for node in inputs.items] == inputs.own


def test_items_are_kept_as_they_were_written() -> None:
    assert read(None, input=[{"role": "user"}]).own == [b'{"role":"user"}']


def test_earlier_items_come_first_and_are_no_items_of_the_request() -> None:
    inputs = read(stored(), input=[{"role": "user"}], previous_response_id="resp_1")
    assert [node.source for node in inputs.items] == [*EARLIER.items, *inputs.own]
    assert inputs.items[1].path == "previous_response_id.1"
    assert read(stored(), previous_response_id="resp_1").own == []


def test_a_reference_is_replaced_by_its_item() -> None:
    assert read(stored(), input=[{"type": "item_reference", "id": "b"}]).own == [b'{"id":"b"}']


@pytest.mark.parametrize(
    "reference", [{"type": "item_reference", "id": "x"}, {"type": "item_reference"}]
)
@pytest.mark.parametrize("has_store", [True, False])
def test_a_reference_that_leads_nowhere_is_refused(reference: JsonObject, has_store: bool) -> None:
    with pytest.raises(InvalidRequest, match="`store: false`") as caught:
        read(stored() if has_store else None, input=[reference])
    assert caught.value.param == "input.0.id"


@pytest.mark.parametrize("store", [None, stored()])
def test_an_earlier_response_that_is_not_kept_is_an_error_of_its_own(
    store: ResponseStore | None,
) -> None:
    with pytest.raises(PreviousResponseUnknown) as caught:
        read(store, input="Hi", previous_response_id="resp_2")
    assert caught.value.param == "previous_response_id"
    assert caught.value.response_id == "resp_2"


@pytest.mark.parametrize("fields", [{}, {"input": []}, {"input": None}])
def test_a_request_has_to_say_something(fields: JsonObject) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(None, **fields)
    assert caught.value.param == "input"
    assert read(None, **fields, instructions="Be brief.").items == []


def test_every_item_gets_an_id_unless_it_has_one() -> None:
    items = [b'{"a": 1}', b'{"id": "x"}', b'{"id": null}']
    assert [json.parse(item) for item in identified(items, "resp_7")] == [
        {"a": 1, "id": "item_7_0"},
        {"id": "x"},
        {"id": "item_7_2"},
    ]
