import pytest

from proxy.conversation.json import JsonValue
from proxy.observability.redaction import REDACTED, Redaction

CANARY = "cAnArY-93"


@pytest.mark.parametrize("text", [CANARY, f"before {CANARY} after", f"{CANARY}{CANARY}"])
def test_a_known_secret_is_found_wherever_it_stands(text: str) -> None:
    value: JsonValue = {"a": [{"b": text}], "c": 5, "d": None}
    redacted = Redaction([CANARY]).value(value)
    assert CANARY not in str(redacted)
    assert redacted == {"a": [{"b": text.replace(CANARY, REDACTED)}], "c": 5, "d": None}


def test_the_longer_of_two_secrets_is_taken_whole() -> None:
    assert Redaction(["abcd", "abcdefgh"]).text("abcdefgh") == REDACTED


def test_more_secrets_may_become_known() -> None:
    redaction = Redaction([CANARY]).knowing("another-one", "")
    assert redaction.text(f"{CANARY} another-one") == f"{REDACTED} {REDACTED}"


def test_what_is_too_short_to_be_a_secret_is_none() -> None:
    assert Redaction(["", "a", "key"]).text("a key") == "a key"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "openai_api_key",
        "Authorization",
        "Proxy-Authorization",
        "cookie",
        "password",
        "db_password",
        "client_secret",
        "access_token",
        "token",
    ],
)
def test_what_stands_under_a_telling_name_is_redacted(name: str) -> None:
    redaction = Redaction([])
    assert redaction.value({name: "anything"}) == {name: REDACTED}
    assert "anything" not in redaction.text(f'{{"{name}": "anything"}}')
    assert "anything" not in redaction.text(f'{{\\"{name}\\":\\"anything\\"}}')
    assert "anything" not in redaction.text(f"{name} = 'anything'")


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "keyboard", "secretary", "name", "key"])
def test_what_only_looks_like_a_telling_name_is_not(name: str) -> None:
    assert Redaction([]).value({name: "kept"}) == {name: "kept"}
    assert Redaction([]).text(f'{{"{name}": "kept"}}') == f'{{"{name}": "kept"}}'


def test_a_schema_that_has_such_a_property_stays_whole() -> None:
    schema: JsonValue = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    assert Redaction([]).value(schema) == schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer abcdefgh12345", f"Bearer {REDACTED}"),
        ("authorization: bearer  abcdefgh.x-y_z/+=", f"authorization: bearer {REDACTED}"),
        ("sk-abcdefghijklmnop1234", REDACTED),
        ("ghp_abcdefghijklmnopqrst1", REDACTED),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("hf_abcdefghijklmnopqrstu", REDACTED),
        ("xoxb-1234567890-abc", REDACTED),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", REDACTED),
        ("a bearer of news", "a bearer of news"),
        ("risk-averse", "risk-averse"),
    ],
)
def test_what_has_the_form_of_a_key_is_redacted(text: str, expected: str) -> None:
    assert Redaction([]).text(text) == expected
