import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from proxy.settings.values import Count, Duration, Headers, Key, Name, Origin, Url


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Count, True, "should be a number"),
        (Duration, "5 minutes", "match pattern"),
        (Origin, "https://chat.example.com/path", "without a path"),
        (Url, "ftp://host", "should be an address"),
        (Url, "http://me:secret@host", "use backend.api_key"),
        (Url, "http://host?x=1", "query or a fragment"),
        (Key, "with space", "visible ASCII"),
        (Headers, {"a b": "c"}, "not the name of a header"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(
    kind: type[object], value: object, problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Count, 3, 3),
        (Duration, "1h30m", "1h30m"),
        (Origin, "http://localhost:3000", "http://localhost:3000"),
        (Url, "http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        (Url, "", None),
        (Name, "", None),
        (Key, "k", SecretStr("k")),
        (Headers, {"X-Team": "a"}, {"X-Team": SecretStr("a")}),
    ],
)
def test_what_can_be_used_is_read_as_it_was_meant(
    kind: type[object], value: object, read: object
) -> None:
    assert TypeAdapter(kind).validate_python(value) == read
