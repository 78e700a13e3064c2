import httpx

from proxy.doctor.target import ServerAnswer, count, member

DOCUMENT = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 3, "odd": True}}


def reached(document: dict[str, object]) -> ServerAnswer:
    return ServerAnswer(500, document, httpx.Headers())  # type: ignore[arg-type]


def test_a_member_is_found_by_keys_and_positions() -> None:
    assert member(DOCUMENT, "choices", 0, "message", "content") == "x"  # type: ignore[arg-type]


def test_a_path_that_leads_nowhere_gives_none() -> None:
    for path in (("choices", 1), ("choices", "message"), ("usage", 0), ("none", "at all")):
        assert member(DOCUMENT, *path) is None  # type: ignore[arg-type]


def test_only_whole_numbers_count() -> None:
    assert count(DOCUMENT, "usage", "prompt_tokens") == 3  # type: ignore[arg-type]
    assert count(DOCUMENT, "usage", "odd") is None  # type: ignore[arg-type]


def test_an_error_speaks_for_itself_or_has_only_its_status() -> None:
    assert reached({"error": {"message": "no"}}).error_message == "no"
    assert reached({"error": "no"}).error_message == "no"
    assert reached({}).error_message == "status 500"
