from proxy.backends.client import PassthroughRequest


def test_a_request_that_is_passed_on_is_written_member_by_member_as_it_came() -> None:
    fields = {"model": b'"m"', "input": b'[ "a" ]', "x": b"1.50"}
    passage = PassthroughRequest("/v1/embeddings", "input", "m", fields)
    assert passage.body() == b'{"model":"m","input":[ "a" ],"x":1.50}'
