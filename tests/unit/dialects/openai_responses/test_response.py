from proxy.dialects.openai_responses.response import (
    echo_of,
)


def test_a_request_field_repeated_in_the_response_is_written_on_one_line() -> None:
    echo = echo_of({"tools": b'[\r\n{"name": "a\\nb"}\n]'})
    assert echo["tools"] == b'[  {"name": "a\\nb"} ]'
