"""Settings from a file, environment variables and flags: names, references, secret files."""

import os
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_settings import BaseSettings, SettingsConfigDict

from proxy.errors import InvalidConfiguration
from proxy.settings import sources
from proxy.settings.sources import Layer, Names, RawValue


class Door(BaseModel):
    """A section of the settings `House`."""

    width: int = 1
    key: str = ""
    guests: list[str] = []


class Cat(BaseModel):
    """A section with a name, as in `cats.tom`."""

    age: int = 0
    chip: str = ""
    toys: list[str] = []


class House(BaseSettings):
    """The settings of these tests."""

    model_config = SettingsConfigDict(
        env_prefix="TEMPER_", env_nested_delimiter="__", env_ignore_empty=True
    )

    door: Door = Door()
    cats: dict[str, Cat] = {}


NAMES = Names(
    sections=("door", "roof", "rooms", "cats"),
    settings=("door.width", "door.key", "door.guests", "roof.colour", "cats.*.age", "cats.*.chip"),
    secrets=("door.key", "cats.*.chip"),
    open=("rooms",),
    tables=("cats",),
)


@pytest.fixture(autouse=True)
def _empty_folder_and_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TEMPER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write_file(text: str) -> Path:
    file = Path("house.toml")
    file.write_text(text, encoding="utf-8")
    return file


def read_usable(text: str) -> tuple[dict[str, object], list[str]]:
    return split_usable(sources.file_layer(write_file(text), NAMES))


def split_usable(layer: Layer) -> tuple[dict[str, object], list[str]]:
    problems: list[InvalidConfiguration] = []
    values = sources.usable(layer, NAMES, problems)
    return {name: given.value for name, given in values.items()}, [
        str(problem) for problem in problems
    ]


def test_values_of_a_file_are_read_with_their_full_names() -> None:
    values, problems = read_usable("[door]\nwidth = 2\nguests = ['a']\n[roof]\ncolour = 'red'\n")
    assert values == {"door.width": 2, "door.guests": ["a"], "roof.colour": "red"}
    assert problems == []


def test_any_key_is_accepted_in_an_open_section() -> None:
    values, problems = read_usable("rooms.kitchen = {size = 1}\n[rooms.'the a.b']\nsize = 2\n")
    assert values == {"rooms.kitchen": {"size": 1}, "rooms.the a.b": {"size": 2}}
    assert problems == []
    assert read_usable("rooms = 5")[1] == ["rooms: is a section, not a setting (house.toml)"]


def test_a_table_may_contain_sections_of_any_name() -> None:
    layer = sources.file_layer(write_file("[cats.tom]\nage = 3\n['cats'.'v1.5']\nage = 4\n"), NAMES)
    assert split_usable(layer) == ({"cats.tom.age": 3, "cats.v1.5.age": 4}, [])
    assert sources.nest(layer, NAMES) == {"cats": {"tom": {"age": 3}, "v1.5": {"age": 4}}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cats.tom.aeg = 3", "cats.tom.aeg: is not a setting; did you mean cats.tom.age?"),
        ("cats.tom.width = 3", "cats.tom.width: is not a setting; did you mean door.width?"),
        ("cats.tom = 3", "cats.tom: should be a section"),
        ("[cats.tom]", "cats.tom: should be a section"),
    ],
)
def test_the_error_for_an_unknown_setting_in_a_table_has_the_full_name(
    text: str, problem: str
) -> None:
    values, problems = read_usable(text)
    assert values == {}
    assert problems[0].startswith(problem)


def test_settings_of_a_table_can_come_from_secret_files_and_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("chip").write_text("canary\n", encoding="utf-8")
    monkeypatch.setenv("CHIP", "sparrow")
    text = "[cats.tom]\nchip_file = 'chip'\n[cats.kit]\nchip = '${CHIP}'\n"
    assert read_usable(text) == ({"cats.tom.chip": "canary", "cats.kit.chip": "sparrow"}, [])
    monkeypatch.setenv("TEMPER_CATS__TOM__AGE", "5")
    monkeypatch.setenv("TEMPER_CATS__KIT", '{"age": 6, "toys": ["a"]}')
    values = {
        name: source.value for name, source in sources.environment_layer(House, NAMES).items()
    }
    assert values == {"cats.tom.age": "5", "cats.kit.age": 6, "cats.kit.toys": ["a"]}


def test_a_missing_settings_file_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="No such file") as caught:
        sources.file_layer(Path("nowhere.toml"), NAMES)
    assert caught.value.setting == "nowhere.toml"


def test_a_byte_order_mark_in_a_settings_or_secret_file_is_ignored() -> None:
    Path("house.toml").write_bytes(b"\xef\xbb\xbf[door]\nwidth = 2\nkey_file = 'key'\n")
    Path("key").write_bytes(b"\xef\xbb\xbfsesame\r\n")
    layer = sources.file_layer(Path("house.toml"), NAMES)
    assert split_usable(layer) == ({"door.width": 2, "door.key": "sesame"}, [])


@pytest.mark.parametrize("content", [b"[door", b"a = 1\na = 2", b"\xff = 1", b"door.width = "])
def test_a_file_that_is_not_valid_toml_is_refused(content: bytes) -> None:
    Path("house.toml").write_bytes(content)
    with pytest.raises(InvalidConfiguration, match=r"is not (valid TOML|a text file)"):
        sources.file_layer(Path("house.toml"), NAMES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("door.widht = 1", "door.widht: is not a setting; did you mean door.width? (house.toml)"),
        ("width = 1", "width: is not a setting; did you mean door.width? (house.toml)"),
        ("roof.width = 1", "roof.width: is not a setting; did you mean door.width? (house.toml)"),
        ("[rof]\na = 1", "rof: is not a setting; did you mean roof? (house.toml)"),
        ("door.key_fil = ''", "door.key_fil: is not a setting; did you mean door.key_file?"),
        ("zzz.yyy = 1", "zzz: is not a setting (house.toml)"),
        ("roof = 1", "roof: is a section, not a setting (house.toml)"),
        ("[[roof]]", "roof: is a section, not a setting (house.toml)"),
    ],
)
def test_the_error_for_an_unknown_name_suggests_the_nearest_setting(
    text: str, problem: str
) -> None:
    values, problems = read_usable(text)
    assert values == {}
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_variables_with_the_prefix_temper_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_DOOR__WIDTH", "3")
    monkeypatch.setenv("TEMPER_DOOR__GUESTS", '["a", "b"]')
    monkeypatch.setenv("OTHER_DOOR__WIDTH", "4")
    layer = sources.environment_layer(House, NAMES)
    assert split_usable(layer) == ({"door.width": "3", "door.guests": ["a", "b"]}, [])
    assert layer["door.width"].origin == "environment variable TEMPER_DOOR__WIDTH"


def test_a_variable_with_the_name_of_a_section_is_refused_if_it_is_not_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPER_DOOR", "{")
    monkeypatch.setenv("TEMPER_DOOR__WIDTH", "3")
    values, problems = split_usable(sources.environment_layer(House, NAMES))
    assert values == {"door.width": "3"}
    assert problems == ["door: is a section, not a setting (environment variable TEMPER_DOOR)"]


def test_an_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_DOOR__WIDTH", "")
    monkeypatch.setenv("TEMPER_NOTHING", "")
    assert sources.environment_layer(House, NAMES) == {}


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("TEMPER_DOOR__WIDHT", "door.widht: is not a setting; did you mean TEMPER_DOOR__WIDTH?"),
        ("TEMPER_DOOR_WIDTH", "door_width: is not a setting; did you mean TEMPER_DOOR__WIDTH?"),
        ("TEMPER_KEY", "key: is not a setting; did you mean TEMPER_DOOR__KEY?"),
        ("TEMPER_KEY_FILE", "key_file: is not a setting; did you mean TEMPER_DOOR__KEY_FILE?"),
        ("TEMPER_DOOR__ZZZ", "door.zzz: is not a setting; did you mean TEMPER_DOOR?"),
        ("TEMPER_ROFO__COLOUR", "rofo.colour: is not a setting; did you mean TEMPER_ROOF__COLOUR?"),
        ("TEMPER_DOOR", "door: is a section, not a setting"),
    ],
)
def test_the_error_for_an_unknown_variable_suggests_the_nearest_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, problem: str
) -> None:
    monkeypatch.setenv(variable, "1")
    values, problems = split_usable(sources.environment_layer(House, NAMES))
    assert values == {}
    assert problems == [f"{problem} (environment variable {variable})"]


@pytest.mark.parametrize(
    ("variable", "warning"),
    [
        ("TEMPER_NAME", "name: is not a setting"),
        ("TEMPER_ENV_LANG", "env_lang: is not a setting"),
        ("TEMPER_WIDTH", "width: is not a setting; did you mean TEMPER_DOOR__WIDTH?"),
        ("TEMPER_SHOP__WIDTH", "shop.width: is not a setting; did you mean TEMPER_DOOR__WIDTH?"),
    ],
)
def test_a_variable_unlike_any_setting_is_logged_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, warning: str
) -> None:
    monkeypatch.setenv(variable, "1")
    assert split_usable(sources.environment_layer(House, NAMES)) == ({}, [])
    assert caplog.messages == [f"{warning} (environment variable {variable})"]
    assert read_usable(f"{variable.lower()} = 1")[1] != []


# the variables that Kubernetes sets for a Service with a port named http
SERVICE_VARIABLES = {
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "8367",
    "SERVICE_PORT_HTTP": "8367",
    "PORT": "tcp://10.0.0.1:8367",
    "PORT_8367_TCP": "tcp://10.0.0.1:8367",
    "PORT_8367_TCP_PROTO": "tcp",
    "PORT_8367_TCP_PORT": "8367",
    "PORT_8367_TCP_ADDR": "10.0.0.1",
}


@pytest.mark.parametrize("form", SERVICE_VARIABLES)
@pytest.mark.parametrize("service", ["TEMPER", "TEMPER_DOOR", "TEMPER_CANARY"])
def test_a_kubernetes_service_variable_is_ignored(
    monkeypatch: pytest.MonkeyPatch, service: str, form: str
) -> None:
    monkeypatch.setenv(f"{service}_{form}", SERVICE_VARIABLES[form])
    assert sources.environment_layer(House, NAMES) == {}


@pytest.mark.parametrize(
    "address", ["tcp://[fd00::1]:8367", "udp://10.0.0.1:53", "sctp://10.0.0.1:9"]
)
def test_temper_port_with_the_address_of_a_kubernetes_service_is_ignored(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("TEMPER_PORT", address)
    assert sources.environment_layer(House, NAMES) == {}


def test_flags_with_the_value_none_are_ignored() -> None:
    layer = sources.flag_layer({"door": {"width": 5, "key": None}}, NAMES)
    assert split_usable(layer) == ({"door.width": 5}, [])


def test_references_to_variables_in_a_file_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE", "re")
    assert read_usable("roof.colour = '${BASE}d, $BASE, ${BASE}'") == (
        {"roof.colour": "red, $BASE, re"},
        [],
    )


def test_references_to_variables_are_replaced_inside_lists_and_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BASE", "re")
    values, _ = read_usable(
        "door.guests = ['${BASE}x', 5]\nroof.colour = {a = ['${BASE}'], b = 1.5}\n"
    )
    assert values == {"door.guests": ["rex", 5], "roof.colour": {"a": ["re"], "b": 1.5}}


@pytest.mark.parametrize("reference", ["${UNSET_NAME}", "${EMPTY}", "${}", "${BASE", "${BASE:-x}"])
def test_an_invalid_reference_or_a_reference_to_an_unset_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    monkeypatch.setenv("BASE", "red")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET_NAME", raising=False)
    values, problems = read_usable(f"roof.colour = 'dark {reference}'")
    assert values == {}
    assert problems == [
        f"roof.colour: the environment variable in {reference} is not set (house.toml)"
    ]


def test_references_to_variables_in_environment_variables_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPER_DOOR__KEY", "${HOME}")
    assert split_usable(sources.environment_layer(House, NAMES)) == ({"door.key": "${HOME}"}, [])


def test_a_secret_is_read_from_the_file_named_in_key_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("key").write_text("s3cret\n", encoding="utf-8")
    assert read_usable("door.key_file = 'key'") == ({"door.key": "s3cret"}, [])
    monkeypatch.setenv("TEMPER_DOOR__KEY_FILE", "key")
    assert split_usable(sources.environment_layer(House, NAMES)) == ({"door.key": "s3cret"}, [])


@pytest.mark.parametrize(
    "text", ["door = {key = 'plain', key_file = 'key'}", "door = {key_file = 'key', key = 'plain'}"]
)
def test_a_secret_file_takes_precedence_over_the_value(text: str) -> None:
    Path("key").write_text("s3cret", encoding="utf-8")
    assert read_usable(text) == ({"door.key": "s3cret"}, [])


def test_no_secret_is_read_if_the_setting_key_file_is_empty() -> None:
    assert read_usable("door.key_file = ''") == ({}, [])


def test_an_empty_binary_or_missing_secret_file_is_refused() -> None:
    Path("empty").write_text(" \n", encoding="utf-8")
    Path("binary").write_bytes(b"\xff")
    for file, problem in (
        ("empty", "empty is empty"),
        ("binary", "binary is not a text file in UTF-8"),
        ("nowhere", "nowhere cannot be read: No such file or directory"),
    ):
        values, problems = read_usable(f"door.key_file = '{file}'")
        assert values == {}
        assert problems == [f"door.key_file: {problem} (house.toml)"]


def test_a_setting_that_ends_in_file_exists_only_for_secrets() -> None:
    assert read_usable("roof.colour_file = 'x'")[1][0].startswith(
        "roof.colour_file: is not a setting"
    )


def test_the_repr_of_a_raw_value_does_not_contain_the_value() -> None:
    assert "s3cret" not in repr(RawValue("s3cret", "house.toml"))
