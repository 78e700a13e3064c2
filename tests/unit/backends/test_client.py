from proxy.backends.client import PassthroughRequest


def test_a_forwarded_request_keeps_the_bytes_of_each_field() -> None:
    fields = {"model": b'"m"', "input": b'[ "a" ]', "x": b"1.50"}
    passage = PassthroughRequest("/v1/embeddings", "input", "m", fields)
    assert passage.body() == b'{"model":"m","input":[ "a" ],"x":1.50}'
