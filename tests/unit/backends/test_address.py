import pytest

from proxy.backends.address import ollama_address, root_of
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


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("  ", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ('"box:1234"', "http://box:1234"),
        ("http://box", "http://box:80"),
        ("https://box", "https://box:443"),
        ("https://box:1234/ollama/", "https://box:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("[::]:1234", "http://[::1]:1234"),
        ("::1", "http://[::1]:11434"),
        ("box:port", "http://box:11434"),
        ("box:99999", "http://box:11434"),
    ],
)
def test_an_ollama_is_found_where_its_own_client_would_look(host: str, address: str) -> None:
    assert ollama_address(host) == address
