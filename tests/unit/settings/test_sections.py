"""Properties of all settings; `test_settings` tests the limits of each."""

import pytest
from pydantic import BaseModel, ValidationError

from proxy.errors import InvalidConfiguration
from proxy.settings import Settings, load_settings, sections
from proxy.settings import models as served_models
from proxy.settings.sections import State

SECTIONS = [
    kind
    for kind in {**vars(sections), **vars(served_models)}.values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
]
SECTIONS = [kind for kind in SECTIONS if kind.model_fields]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_default_and_a_description(section: type[BaseModel]) -> None:
    section()
    assert section.__doc__
    assert all(field.description for field in section.model_fields.values())


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_refuses_unknown_settings_and_cannot_be_changed(section: type[BaseModel]) -> None:
    with pytest.raises(ValidationError):
        section.model_validate({"unheard_of": 1})
    name = next(iter(section.model_fields))
    with pytest.raises(ValidationError):
        setattr(section(), name, None)


SECRET, OLD = "a-secret-of-ours-0", "the-one-before-it"


def settings_of(**state: object) -> Settings:
    return load_settings(None, {"state": state})


@pytest.mark.parametrize(
    "url",
    [
        "valkey://127.0.0.1:6379",
        "redis://localhost",
        "redis://user:pass@[::1]:6379/3?namespace=ours",
        "unix:///run/valkey.sock?db=1&namespace=a.b:c-d_e",
    ],
)
def test_a_store_on_this_machine_requires_no_secret(url: str) -> None:
    state = settings_of(url=url).state
    assert state.url is not None
    assert state.url.get_secret_value() == url
    assert state.secrets == ("",)
    assert "pass" not in repr(state)


@pytest.mark.parametrize("url", ["valkeys://store.example", "rediss://10.0.0.1/1"])
def test_a_store_on_another_machine_requires_a_secret(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"state\.url: .*TEMPER_STATE__SECRET"):
        settings_of(url=url)
    assert settings_of(url=url, secret=SECRET).state.secrets == (SECRET,)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1", "valkey://"),
        ("redis://", "valkey://"),
        ("unix://", "unix://"),
        ("redis://127.0.0.1:99999", "out of range"),
        ("redis://127.0.0.1/a", "no path except a database number"),
        ("redis://127.0.0.1?db=1", "unknown option 'db'"),
        ("redis://127.0.0.1?namespace=", "1 to 64"),
        ("redis://:hidden@127.0.0.1?namespace=a%20b", "1 to 64"),
    ],
)
def test_an_invalid_store_address_is_refused_without_showing_its_password(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem) as refused:
        settings_of(url=url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("secret", ["short", f"{SECRET} short", f"{SECRET} {OLD} {SECRET}", " "])
def test_a_short_secret_or_a_third_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidConfiguration, match="at least 16 characters") as refused:
        settings_of(secret=secret)
    assert OLD not in str(refused.value)


def test_a_secret_file_may_contain_the_previous_secret(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("keys") / "secret"
    file.write_text(f"{SECRET}\n{OLD}\n")
    assert settings_of(secret_file=str(file)).state.secrets == (SECRET, OLD)


def test_an_unset_or_empty_state_url_is_none() -> None:
    assert State().url is None
    assert State(url="").url is None


@pytest.mark.parametrize("timeout", [9, 10_001, True])
def test_a_store_timeout_outside_10_to_10000_milliseconds_is_refused(timeout: object) -> None:
    with pytest.raises(InvalidConfiguration, match="timeout_ms"):
        settings_of(timeout_ms=timeout)


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"path": "m.gguf"}},
        {"model": {"hf_repo": "owner/name"}},
        {"models": {"a": {"path": "m.gguf"}}},
    ],
)
def test_backend_replicas_above_1_with_a_managed_server_are_refused(
    sections: dict[str, dict[str, object]],
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"backend\.replicas: must be 1"):
        load_settings(None, {"backend": {"replicas": 2}, **sections})
