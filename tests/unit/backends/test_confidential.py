import pytest

from proxy.backends.confidential import REDACTED, Confidential

KEY = "canary-0123456789"
REMOVED = REDACTED.decode()


def test_a_value_is_taken_out_wherever_it_stands() -> None:
    said = f"{KEY} is wrong, {KEY}".encode()
    assert Confidential([KEY]).out_of(said) == REDACTED + b" is wrong, " + REDACTED


def test_the_longer_of_two_values_is_taken_out_whole() -> None:
    assert Confidential([KEY, f"{KEY}-more"]).out_of(f"{KEY}-more".encode()) == REDACTED


def test_a_value_is_found_as_json_writes_it() -> None:
    quoting = Confidential(['canary-"\\-0123456789'])
    assert quoting.out_of(rb'{"a": "canary-\"\\-0123456789"}') == b'{"a": "' + REDACTED + b'"}'


@pytest.mark.parametrize("short", ["", "team-ai"])
def test_what_is_too_short_to_be_a_secret_stays(short: str) -> None:
    assert Confidential([short]).out_of(b"the team-ai") == b"the team-ai"


def test_the_texts_of_an_error_lose_it_and_all_else_stays() -> None:
    error = Confidential([KEY]).out_of_error({"message": f"Gr\u00fc\u00dfe, {KEY}", "code": 401})
    assert error == {"message": f"Gr\u00fc\u00dfe, {REMOVED}", "code": 401}
