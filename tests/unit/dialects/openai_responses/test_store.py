import pytest

from proxy.dialects.openai_responses.store import StoredResponse, id_of


def test_a_response_adds_what_it_was_asked_with_and_its_own_items() -> None:
    response = StoredResponse("resp_1", [b"{}", b"[]"], [b'"x"'], b"whole")
    assert response.items == [b"{}", b"[]", b'"x"']
    assert response.size == 1024 + 5 + 2 + 2 + 3


@pytest.mark.parametrize(
    ("item", "item_id"),
    [(b'{"id":"msg_1"}', "msg_1"), (b"{}", ""), (b'{"id":1}', ""), (b"[]", "")],
)
def test_an_item_may_have_an_id(item: bytes, item_id: str) -> None:
    assert id_of(item) == item_id
