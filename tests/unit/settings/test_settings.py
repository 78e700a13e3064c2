"""Settings: defaults, limits, precedence, contradictions, and complete documentation."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from proxy.errors import InvalidConfiguration
from proxy.settings import Settings, is_loopback, load_settings
from proxy.settings.models import ServedModel
from proxy.settings.tool_servers import ToolServer

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = (REPOSITORY / "config" / "temper.toml").read_text(encoding="utf-8")
REFERENCE = (REPOSITORY / "docs/reference/settings.md").read_text(encoding="utf-8")

NAMES = [
    f"{section}.{name}"
    for section, values in Settings()
    if isinstance(values, BaseModel)
    for name in type(values).model_fields
]


@pytest.fixture(autouse=True)
def _empty_folder_and_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TEMPER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write_file(text: str) -> Path:
    file = Path("operator.toml")
    file.write_text(text, encoding="utf-8")
    return file


def error_of(text: str) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(write_file(text))
    return caught.value


def toml(value: object) -> str:
    match value:
        case None:
            return '""'
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case [] | {}:
            return str(value)
        case _:
            return format(value, "d" if isinstance(value, int) else "g")


def test_the_defaults_apply_if_there_are_no_file_no_variables_and_no_flags() -> None:
    assert load_settings() == Settings()
    assert Settings().server.host == "127.0.0.1"
    assert Settings().server.port == 8367


def test_temper_toml_in_the_working_directory_is_read() -> None:
    Path("temper.toml").write_text("[server]\nport = 1\n", encoding="utf-8")
    assert load_settings().server.port == 1


def test_temper_toml_in_the_working_directory_is_not_read_if_a_file_is_given() -> None:
    Path("temper.toml").write_text("[server]\nport = 1\n", encoding="utf-8")
    assert load_settings(write_file("[server]\nhost = 'localhost'\n")).server.port == 8367


def test_flags_take_precedence_over_variables_and_variables_over_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_file("[server]\nport = 1\ngrace_seconds = 1\nkeep_alive_seconds = 1\n")
    monkeypatch.setenv("TEMPER_SERVER__PORT", "2")
    monkeypatch.setenv("TEMPER_SERVER__GRACE_SECONDS", "2")
    server = load_settings(file, {"server": {"port": 3}}).server
    assert (server.port, server.grace_seconds, server.keep_alive_seconds) == (3, 2, 1)


def test_workflows_are_read_by_model_name(monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_file("""
        [workflows."qwen3:8b"]
        required_steps = ["read"]
        prerequisites = [{tool = "edit", needs = "read", argument = "path"}]
        """)
    monkeypatch.setenv("TEMPER_WORKFLOWS__AGENT", '{"terminal_tools": ["finish"]}')
    workflows = load_settings(file).workflows
    assert list(workflows) == ["qwen3:8b", "agent"]
    assert workflows["qwen3:8b"].prerequisites[0].argument == "path"
    assert workflows["agent"].terminal_tools == ("finish",)


def test_models_are_read_by_name_from_the_file_and_from_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_file("""
        [models."qwen2.5-coder"]
        path = "coder.gguf"
        aliases = ["coder", "gpt-4"]
        [models.remote]
        url = "http://127.0.0.1:1/"
        api_key = "canary"
        """)
    monkeypatch.setenv("TEMPER_MODELS__REMOTE__KIND", "openai")
    settings = load_settings(file)
    assert list(settings.models) == ["qwen2.5-coder", "remote"]
    assert settings.models["qwen2.5-coder"].aliases == ["coder", "gpt-4"]
    remote = settings.models["remote"]
    assert (remote.kind, remote.url) == ("openai", "http://127.0.0.1:1")
    assert "canary" not in f"{settings!r} {settings.model_dump_json()}"


def test_a_flag_with_the_value_none_does_not_override_the_file() -> None:
    file = write_file("[server]\nport = 1\n")
    assert load_settings(file, {"server": {"port": None}}).server.port == 1


def test_an_empty_flag_resets_a_setting_of_the_file_to_none() -> None:
    file = write_file('[backend]\nurl = "http://127.0.0.1:8080"\n')
    assert load_settings(file, {"backend": {"url": ""}}).backend.url is None


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "setting", "message"),
    [
        ("server.port = 'high'", "server.port", "valid integer"),
        ("server.port = true", "server.port", "should be a number"),
        ("server.port = 70000", "server.port", "less than or equal to 65535"),
        ("server.port = [1]", "server.port", "valid integer"),
        ("server.host = 1", "server.host", "valid string"),
        ("server.host = ''", "server.host", "at least 1 character"),
        ("server.grace_seconds = -1", "server.grace_seconds", "greater than or equal to 0"),
        ("server.keep_alive_seconds = 0", "server.keep_alive_seconds", "greater than 0"),
        ("backend.idle_seconds = inf", "backend.idle_seconds", "finite"),
        ("backend.idle_seconds = nan", "backend.idle_seconds", "should be"),
        ("backend.url = 'localhost:8080'", "backend.url", "an address like"),
        ("backend.url = 'http://'", "backend.url", "an address like"),
        ("backend.url = 'ftp://host'", "backend.url", "an address like"),
        ("backend.url = 'http://host:99999'", "backend.url", "out of range"),
        ("backend.url = 'http://host/?a=b'", "backend.url", "a query"),
        ("model.slots = 0", "model.slots", "greater than or equal to 1"),
        ("model.alias = 'a b'", "model.alias", "pattern"),
        ("guardrails.text_policy = 'never'", "guardrails.text_policy", "'respond', 'accept'"),
        ("profile.tools_in_prompt = 'yes'", "profile.tools_in_prompt", "'auto', 'never'"),
        ("workflows.a = 5", "workflows.a", "valid dictionary"),
        ("workflows.a.steps = ['b']", "workflows.a", "steps: unknown option"),
        ("workflows.a.required_steps = [1]", "workflows.a", "required_steps.0: should be"),
        ("models.a.slots = 0", "models.a.slots", "greater than or equal to 1"),
        ("models.a.aliases = ['a b']", "models.a.aliases", "0: String should match"),
        ("models.a.ttl_seconds = -1", "models.a.ttl_seconds", "greater than or equal to 0"),
        ("guardrails.max_attempts = 4", "guardrails.max_attempts", "less than or equal to 3"),
        ("guardrails.strict = 'maybe'", "guardrails.strict", "boolean"),
        ("logging.level = 'all'", "logging.level", "'debug'"),
    ],
)
def test_the_error_for_a_wrong_value_names_the_setting_and_the_file(
    text: str, setting: str, message: str
) -> None:
    error = error_of(text)
    assert error.setting == setting
    assert message in error.problem
    assert "not " in error.problem
    assert error.problem.endswith("(operator.toml)")


def test_the_error_for_a_wrong_value_in_a_variable_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPER_SERVER__PORT", "high")
    with pytest.raises(InvalidConfiguration, match="variable TEMPER_SERVER__PORT") as caught:
        load_settings()
    assert caught.value.setting == "server.port"


def test_the_error_for_a_wrong_flag_names_the_command_line() -> None:
    with pytest.raises(InvalidConfiguration, match="command line"):
        load_settings(None, {"server": {"port": -1}})


def test_all_errors_are_reported_at_once() -> None:
    error = error_of("server.port = -1\nserver.prot = 2\nserver.host = '0.0.0.0'\n")
    assert str(error).splitlines() == [
        "configuration: 3 problems",
        "  server.prot: is not a setting; did you mean server.port? (operator.toml)",
        "  server.port: should be greater than or equal to 0, not -1 (operator.toml)",
        "  server.host: 0.0.0.0 is reachable from other machines, which requires an API key; set"
        " server.api_key (TEMPER_SERVER__API_KEY) or listen on 127.0.0.1",
    ]


def test_backend_url_and_model_path_cannot_be_combined() -> None:
    error = error_of("backend.url = 'http://127.0.0.1:1'\nmodel.path = 'a.gguf'\n")
    assert error.setting == "backend.url"
    assert "model.path" in error.problem


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("backend.url = 'http://127.0.0.1:1'\nmodels.a.path = 'a.gguf'", "backend.url"),
        ("model.path = 'b.gguf'\nmodels.a.path = 'a.gguf'", "model.path"),
        ("ollama.model = 'b'\nmodels.a.path = 'a.gguf'", "ollama.model"),
        ("server.workers = 2\nmodels.a.path = 'a.gguf'", "server.workers"),
        ("models.a.slots = 1", "models.a.path"),
    ],
)
def test_settings_that_conflict_with_a_models_section_are_refused(text: str, setting: str) -> None:
    assert error_of(text).setting == setting


RULES = "required_steps = ['read']"
MODELS = "[models.large]\nurl = 'http://h'\naliases = ['coder']\n"


@pytest.mark.parametrize(
    ("text", "setting", "message"),
    [
        (
            "[workflows.a]\nrequired_steps = ['b']\nterminal_tools = ['b']",
            "a",
            "'b' can never be called",
        ),
        (
            "workflows.a.prerequisites = [{tool = 'b', needs = 'c'}, {tool = 'c', needs = 'b'}]",
            "a",
            "prerequisites.0.tool: 'b' can never be called, because b needs c needs b",
        ),
        ("workflows.a.required_steps = ['b', 'b']", "a", "required_steps.1: it is listed twice"),
        (f"{MODELS}[workflows.larg]\n{RULES}", "larg", "did you mean 'large'?"),
        (f"{MODELS}[workflows.qwen]\n{RULES}", "qwen", "did you mean 'large'?"),
        (
            f"{MODELS}[workflows.coder]\n{RULES}\n[workflows.large]\n{RULES}",
            "large",
            "workflows.coder already has rules for models.large",
        ),
        (
            f"model.path = 'm.gguf'\n[workflows.a]\n{RULES}\n[workflows.b]\n{RULES}",
            "b",
            "already has rules for the only model",
        ),
    ],
)
def test_workflows_that_can_never_be_met_or_never_apply_are_refused(
    text: str, setting: str, message: str
) -> None:
    problem = error_of(text)
    assert (problem.setting, message in problem.problem) == (f"workflows.{setting}", True)


@pytest.mark.parametrize(
    "text",
    [
        f"{MODELS}[workflows.coder]\n{RULES}",
        f"model.path = 'm.gguf'\n[workflows.default]\n{RULES}",
        f"ollama.model = 'qwen3:8b'\n[workflows.agent]\n{RULES}",
        f"backend.url = 'http://h'\n[workflows.a]\n{RULES}\n[workflows.b]\n{RULES}",
        "model.path = 'm.gguf'",
    ],
)
def test_a_workflow_is_accepted_if_its_model_is_configured_or_any_name_is_possible(
    text: str,
) -> None:
    assert len(load_settings(write_file(text)).workflows) == text.count("[workflows.")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "temper.example"])
def test_a_server_host_that_is_not_loopback_requires_an_api_key(host: str) -> None:
    assert error_of(f"server.host = '{host}'").setting == "server.host"
    allowed = load_settings(write_file(f"server = {{host = '{host}', api_key = 'k'}}"))
    assert allowed.server.host == host


def test_an_invalid_key_is_not_reported_as_missing() -> None:
    assert error_of("server = {host = '0.0.0.0', api_key = 'a b'}").setting == "server.api_key"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        # loopback
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost", True),
        # other addresses
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("::ffff:8.8.8.8", False),
        ("", False),
        ("*", False),
    ],
)
def test_only_loopback_addresses_and_localhost_are_loopback_hosts(
    host: str, *, expected: bool
) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("duration", ["", "5", "-1", "5m", "1h30m", "1.5h", "500ms"])
def test_a_duration_in_the_format_of_ollama_is_accepted(duration: str) -> None:
    settings = load_settings(write_file(f"ollama.keep_alive = '{duration}'"))
    assert settings.ollama.keep_alive == duration


@pytest.mark.parametrize("duration", ["5 m", "5m30", "-5m", "m", "for ever"])
def test_a_duration_invalid_for_ollama_is_refused(duration: str) -> None:
    assert error_of(f"ollama.keep_alive = '{duration}'").setting == "ollama.keep_alive"


def test_backend_urls_is_deduplicated_and_cannot_be_combined_with_backend_url() -> None:
    several = load_settings(write_file("backend.urls = ['http://a', 'http://b/']"))
    assert several.backend.addresses == ("http://a", "http://b")
    assert load_settings(
        write_file("backend.urls = ['http://a', 'http://a/']")
    ).backend.addresses == ("http://a",)
    error = error_of("backend = {url = 'http://a', urls = ['http://b']}")
    assert (error.setting, "backend.url;" in error.problem) == ("backend.urls", True)


def test_the_last_slash_of_backend_url_is_removed() -> None:
    assert (
        load_settings(write_file("backend.url = 'http://h:1/v1/'")).backend.url == "http://h:1/v1"
    )


@pytest.mark.parametrize("service", ["TEMPER", "TEMPER_SERVER", "TEMPER_BACKEND"])
def test_kubernetes_service_variables_are_ignored_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, service: str
) -> None:
    for form, value in {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "8367",
        "SERVICE_PORT_HTTP": "8367",
        "PORT": "tcp://10.0.0.1:8367",
        "PORT_8367_TCP": "tcp://10.0.0.1:8367",
        "PORT_8367_TCP_PROTO": "tcp",
        "PORT_8367_TCP_PORT": "8367",
        "PORT_8367_TCP_ADDR": "10.0.0.1",
    }.items():
        monkeypatch.setenv(f"{service}_{form}", value)
    assert load_settings() == Settings()
    assert caplog.messages == []


def test_a_tilde_in_model_path_is_expanded_to_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings(write_file("model.path = '~/m.gguf'")).model.path == tmp_path / "m.gguf"


def test_the_repr_the_text_and_the_json_of_settings_contain_no_secret() -> None:
    settings = load_settings(write_file("[backend]\napi_key = 'canary'\n"))
    assert settings.backend.api_key == SecretStr("canary")
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server.api_key = 'canary canary'", "visible ASCII"),
        ("server.api_key = ['canary']", "valid string"),
        ("backend.url = 'http://me:canary@host'", "use backend.api_key"),
        ("server.port = '${CANARY}'", "valid integer"),
        ("backend.headers = {Authorization = 'canary'}", "use api_key"),
        ("backend.headers = {X-Request-Id = 'canary'}", "set by Temper itself"),
        ("backend.headers = {Transfer-Encoding = 'canary'}", "set by Temper itself"),
        ("backend.headers = {'x y' = 'canary'}", "not the name of a header"),
        ('backend.headers = {x = "canary\\r\\ny: z"}', "visible ASCII"),
        ("backend.headers = {x = 'canary '}", "visible ASCII"),
        ("backend.headers = {x = ['canary']}", "x: should be a valid string"),
        ("backend.headers = 'canary'", "valid dictionary"),
        ("models.a = {url = 'http://h', api_key = 'canary canary'}", "visible ASCII"),
        ("mcp.a = {url = 'http://me:canary@host'}", "use headers"),
        ("mcp.a = {url = 'http://h', headers = {Mcp-Session-Id = 'canary'}}", "set by Temper"),
        ("mcp.a = {command = ['x'], env = {'1' = 'canary'}}", "name of an environment variable"),
        ('mcp.a = {command = ["x"], env = {A = "canary\\u0000"}}', "NUL character"),
    ],
)
def test_the_error_for_an_invalid_value_does_not_quote_a_secret(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("CANARY", "canary")
    error = error_of(text)
    assert message in error.problem
    assert "canary" not in str(error)


def test_references_to_environment_variables_in_headers_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "canary")
    settings = load_settings(
        write_file("backend.headers = {x-team = 'a b', x-key = 'k ${CANARY}'}")
    )
    values = {name: value.get_secret_value() for name, value in settings.backend.headers.items()}
    assert values == {"x-team": "a b", "x-key": "k canary"}
    assert "canary" not in f"{settings!r} {settings.model_dump_json()}"


def uncomment_example() -> str:
    return re.sub(r"^#(?=[a-z_]+ = )", "", EXAMPLE, flags=re.MULTILINE)


def test_loading_the_example_file_gives_the_default_settings() -> None:
    assert load_settings(write_file(EXAMPLE)) == Settings()
    assert all(section == {} for section in tomllib.loads(EXAMPLE).values())


def test_the_example_file_shows_the_defaults_of_every_setting() -> None:
    assert load_settings(write_file(uncomment_example())) == Settings()
    example = tomllib.loads(uncomment_example())
    names = [f"{section}.{name}" for section, values in example.items() for name in values]
    assert [
        name for name in names if name.removesuffix("_file") not in NAMES or name in NAMES
    ] == NAMES


@pytest.mark.parametrize("setting", NAMES)
def test_every_setting_is_described_in_the_example_file_and_in_the_reference(setting: str) -> None:
    section, _, name = setting.partition(".")
    values: BaseModel = getattr(Settings(), section)
    description = type(values).model_fields[name].description
    default = toml(getattr(values, name))
    assert description
    assert f"# {description}\n#{name} = {default}\n" in EXAMPLE
    assert f"| `{setting}` | `{default}` | {description} |\n" in REFERENCE


OF_A_MODEL = [name for name in ServedModel.model_fields if name != "alias"]


@pytest.mark.parametrize("name", OF_A_MODEL)
def test_every_setting_of_a_model_is_described_in_the_example_file_and_in_the_reference(
    name: str,
) -> None:
    description, default = ServedModel.model_fields[name].description, getattr(ServedModel(), name)
    assert f"# {description}\n# {name} = {toml(default)}\n" in EXAMPLE
    assert f"| `models.NAME.{name}` | `{toml(default)}` | {description} |\n" in REFERENCE


def test_the_reference_lists_exactly_the_existing_settings() -> None:
    assert re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", REFERENCE, flags=re.MULTILINE) == NAMES
    listed = re.findall(r"^\| `models\.NAME\.([a-z_]+)` \|", REFERENCE, flags=re.MULTILINE)
    assert listed == OF_A_MODEL
    listed = re.findall(r"^\| `mcp\.NAME\.([a-z_]+)` \|", REFERENCE, flags=re.MULTILINE)
    assert listed == list(ToolServer.model_fields)


@pytest.mark.parametrize("name", ToolServer.model_fields)
def test_every_setting_of_a_tool_server_is_in_the_example_file_and_in_the_reference(
    name: str,
) -> None:
    description, default = ToolServer.model_fields[name].description, getattr(ToolServer(), name)
    assert f"# {description}\n# {name} = {toml(default)}\n" in EXAMPLE
    assert f"| `mcp.NAME.{name}` | `{toml(default)}` | {description} |\n" in REFERENCE


def test_references_to_environment_variables_in_tool_servers_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "canary")
    settings = load_settings(
        write_file(
            "mcp.a = {url = 'http://h/mcp/', headers = {authorization = 'Bearer ${CANARY}'}}\n"
            "mcp.b = {command = ['x'], env = {KEY = '${CANARY}'}}\n"
        )
    )
    assert settings.mcp["a"].url == "http://h/mcp/"
    assert settings.mcp["a"].headers["authorization"].get_secret_value() == "Bearer canary"
    assert settings.mcp["b"].env["KEY"].get_secret_value() == "canary"
    assert "canary" not in f"{settings!r} {settings.model_dump_json()}"


def test_the_error_for_contradictory_tool_server_settings_names_the_setting() -> None:
    text = "[server]\nworkers = 2\n[mcp.time]\ncommand = ['x']\n"
    assert error_of(text).setting == "server.workers"
    wrong = error_of("[tools.hosted]\nweb_search = 'serch.find'\n[mcp.search]\nurl = 'http://h'\n")
    assert (wrong.setting, "did you mean 'search'" in wrong.problem) == ("tools.hosted", True)


def test_aliases_must_name_existing_models(tmp_path: Path) -> None:
    file = tmp_path / "temper.toml"
    file.write_text(f"{MODELS}[aliases]\n'claude-*' = 'coder'\n'gpt-?' = 'large'\n", "utf-8")
    assert list(load_settings(file).aliases) == ["claude-*", "gpt-?"]
    file.write_text("[aliases]\n'claude-*' = 'org/Model-8B:q4'\n", "utf-8")
    assert load_settings(file).aliases["claude-*"] == "org/Model-8B:q4"
    file.write_text(f"{MODELS}[aliases]\n'claude-*' = 'larg'\n", "utf-8")
    with pytest.raises(
        InvalidConfiguration, match="model 'larg' does not exist; did you mean 'large'"
    ) as raised:
        load_settings(file)
    assert raised.value.setting == "aliases.claude-*"
    file.write_text("[aliases]\n'claude-*' = ''\n", "utf-8")
    with pytest.raises(InvalidConfiguration, match=r"aliases\.claude-"):
        load_settings(file)


def test_tools_that_need_approval_require_a_single_worker_and_the_dashboard() -> None:
    asking = "[mcp.notes]\nurl = 'http://127.0.0.1:1/mcp'\ntools = ['drop']\nask = ['drop']\n"
    assert load_settings(write_file(asking)).mcp["notes"].ask == ["drop"]
    for extra, names in (
        ("[server]\nworkers = 2\n", r"server\.workers.* must be 1 with mcp\.notes\.ask"),
        ("[ui]\nenabled = false\n", r"mcp\.notes\.ask.* requires ui\.enabled = true"),
    ):
        with pytest.raises(InvalidConfiguration, match=names):
            load_settings(write_file(extra + asking))
