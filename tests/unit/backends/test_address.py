import pytest

from proxy.backends.address import root_of
from proxy.errors import InvalidConfiguration


@pytest.mark.parametrize(
    ("written", "root"),
    [
        ("http://127.0.0.1:9931", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/v1", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/v1/", "http://127.0.0.1:9931"),
        (" http://127.0.0.1:9931/v1 ", "http://127.0.0.1:9931"),
        ("127.0.0.1:9931/v1", "http://127.0.0.1:9931"),
        ("https://host/engine/v1", "https://host/engine"),
        ("https://host/dev1", "https://host/dev1"),
        ("http://[::1]:9931/v1", "http://[::1]:9931"),
    ],
)
def test_an_address_is_the_same_with_and_without_scheme_slash_and_version(
    written: str, root: str
) -> None:
    assert root_of(written) == root


def test_credentials_are_refused_without_being_repeated() -> None:
    with pytest.raises(InvalidConfiguration, match="api_key") as caught:
        root_of("http://anna:secret@host:1/v1")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "written",
    ["", "http://", "ftp://host", "http://host:port", "http://host?key=1", "http://host#part"],
)
def test_an_address_that_cannot_be_asked_is_the_operators_mistake(written: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"backend\.url"):
        root_of(written)
