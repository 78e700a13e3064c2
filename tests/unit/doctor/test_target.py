import httpx

from proxy.doctor.target import ServerResponse, count, fail, ok, skip, warn

DOCUMENT = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 3, "odd": True}}


def response_with(document: dict[str, object]) -> ServerResponse:
    return ServerResponse(500, document, httpx.Headers())  # type: ignore[arg-type]


def test_the_function_count_returns_none_for_a_value_that_is_no_integer() -> None:
    assert count(DOCUMENT, "usage", "prompt_tokens") == 3  # type: ignore[arg-type]
    assert count(DOCUMENT, "usage", "odd") is None  # type: ignore[arg-type]


def test_the_error_message_is_read_from_the_response_or_else_names_its_status() -> None:
    assert response_with({"error": {"message": "no"}}).error_message == "no"
    assert response_with({"error": "no"}).error_message == "no"
    assert response_with({}).error_message == "status 500"


def test_the_functions_ok_warn_fail_and_skip_set_the_status_and_the_remedy() -> None:
    assert (ok("a").status, ok("a").remedy) == ("ok", "")
    assert (warn("a", "b").status, warn("a", "b").remedy) == ("warn", "b")
    assert (fail("a", "b").status, fail("a", "b").remedy) == ("fail", "b")
    assert skip("a").status == "skipped"


def test_keyword_arguments_of_a_finding_become_measured_values() -> None:
    result = ok("a", window=1, calls="at once")
    assert (result.summary, result.measured) == ("a", {"window": 1, "calls": "at once"})
