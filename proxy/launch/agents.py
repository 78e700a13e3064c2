"""The coding agents that `temper launch` starts, and the configuration of each for Temper.

An agent is configured in one of two ways, from the same values:

- For one run: environment variables and arguments (`Profile`). If an agent needs a file, it is
  written into a temporary folder. The user's files are not changed.
- Permanently (`--install`): entries of a file in the user's home directory (`Installation`).

By default, agents assume the window of a hosted model and compact their conversation too late.
Therefore, the configuration contains the window that Temper reports. An agent that uses several
hosted models, such as an additional small model, gets the same local model for each. The
variables and keys were checked with the versions in `docs/guides/agents.md`.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

FOLDER = "{folder}"  # replaced by the temporary folder of a run
NO_KEY = "none"  # a placeholder, because clients reject an empty key
# tokens; the first request of a coding agent takes about a third of this (12,000 in Claude Code)
LEAST_WINDOW = 32_768
# the share of the window at which an agent compacts its conversation; the next reply needs space
_COMPACT_AT = 0.8
_KEY_VARIABLE = "TEMPER_KEY"
_MOST_OUTPUT = 8_192  # tokens of a reply that an agent may request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running Temper and the model to use; `url` omits /v1, and `window` is in tokens."""

    url: str
    model: str
    window: int | None = None
    key: str = NO_KEY

    @property
    def output_tokens(self) -> int:
        """The maximum length of a reply that an agent may request, in tokens."""
        return min(_MOST_OUTPUT, (self.window or LEAST_WINDOW) // 4)


@dataclass(frozen=True, slots=True)
class Profile:
    """The configuration of one run; `files` maps names in the temporary folder to contents."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Installation:
    """A permanent configuration in a file of the user.

    The file is `path` in the directory that the environment variable `variable` names, or else in
    `folder` of the home directory. A JSON object is merged into the file; text becomes a separate
    file. After the installation, the user starts the agent with `command`.
    """

    variable: str
    folder: str
    path: str
    content: JsonObject | str
    command: str


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent: its program, the command that installs it, and its configuration.

    `permanent` is None if the agent has no file that Temper could restore.
    """

    title: str
    program: str
    package: str
    profile: Callable[[Endpoint], Profile]
    permanent: Callable[[Endpoint], Installation] | None = None


def describe(profile: Profile, program: str) -> str:
    """Write a profile as text for the user: the files, the variables and the command line."""
    files = [f"# {FOLDER}/{name}\n{content}" for name, content in profile.files.items()]
    command = shlex.join((program, *profile.arguments))
    return "\n".join([*files, *filter(None, [as_exports(profile.environment)]), command])


def as_exports(environment: Mapping[str, str]) -> str:
    """Write environment variables as lines for a shell."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())


def as_toml(values: JsonObject) -> str:
    """Write nested objects as TOML: top-level values first, then each table with its values.

    Strings and numbers are written as JSON, which is valid TOML.
    """
    tables = [*_flat_tables(values)]
    return "\n\n".join(
        "\n".join([*([f"[{name}]"] if name else []), *(f"{k} = {v}" for k, v in lines.items())])
        for name, lines in tables
    )


def _flat_tables(values: JsonObject, name: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    scalars = {k: json.dump_text(v) for k, v in values.items() if not isinstance(v, dict)}
    if scalars:
        yield name, scalars
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat_tables(value, f"{name}.{key}" if name else key)


def claude_environment(to: Endpoint) -> dict[str, str]:
    """Return the environment variables of Claude Code."""
    names = ("MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL")
    environment = {
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key,
        **{f"ANTHROPIC_{name}": to.model for name in names},
        # otherwise each request starts with a different text, and the prompt cache is not used
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
    }
    if to.window is not None:
        environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = f"{to.window}"
    return environment


def _install_claude(to: Endpoint) -> Installation:
    variables: JsonObject = {**claude_environment(to)}
    return Installation(
        "CLAUDE_CONFIG_DIR", ".claude", "settings.json", {"env": variables}, "claude"
    )


def codex_settings(to: Endpoint) -> JsonObject:
    """Return the settings of Codex; they name a variable that contains the API key."""
    settings: JsonObject = {"model": to.model, "model_provider": "temper"}
    if to.window is not None:
        settings["model_context_window"] = to.window
        settings["model_auto_compact_token_limit"] = int(to.window * _COMPACT_AT)
    provider: JsonObject = {"name": "Temper", "base_url": f"{to.url}/v1", "wire_api": "responses"}
    if to.key != NO_KEY:
        provider["env_key"] = _KEY_VARIABLE
    return {**settings, "model_providers": {"temper": provider}}


def _codex_profile(to: Endpoint) -> Profile:
    values = [
        (f"{table}.{name}" if table else name, value)
        for table, lines in _flat_tables(codex_settings(to))
        for name, value in lines.items()
    ]
    arguments = tuple(word for name, value in values for word in ("-c", f"{name}={value}"))
    return Profile({} if to.key == NO_KEY else {_KEY_VARIABLE: to.key}, arguments)


def _install_codex(to: Endpoint) -> Installation:
    # since Codex 0.134, a profile is a separate file, so config.toml is not changed
    text = f"{as_toml(codex_settings(to))}\n"
    return Installation(
        "CODEX_HOME", ".codex", "temper.config.toml", text, "codex --profile temper"
    )


def _opencode_settings(to: Endpoint) -> JsonObject:
    name = f"temper/{to.model}"
    model: JsonObject = {"name": to.model, "tool_call": True}
    if to.window is not None:
        model["limit"] = {"context": to.window, "output": to.output_tokens}
    provider: JsonObject = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Temper",
        "options": {"baseURL": f"{to.url}/v1", "apiKey": to.key},
        "models": {to.model: model},
    }
    return {"model": name, "small_model": name, "provider": {"temper": provider}}


def _opencode_profile(to: Endpoint) -> Profile:
    return Profile({"OPENCODE_CONFIG_CONTENT": json.dump_text(_opencode_settings(to))})


def _install_opencode(to: Endpoint) -> Installation:
    settings: JsonObject = {"$schema": "https://opencode.ai/config.json", **_opencode_settings(to)}
    return Installation(
        "XDG_CONFIG_HOME", ".config", "opencode/opencode.json", settings, "opencode"
    )


def _crush_settings(to: Endpoint) -> JsonObject:
    model: JsonObject = {
        "id": to.model,
        "name": to.model,
        "context_window": to.window or LEAST_WINDOW,
        "default_max_tokens": to.output_tokens,
    }
    provider: JsonObject = {
        "type": "openai-compat",
        "name": "Temper",
        "base_url": f"{to.url}/v1",
        "api_key": to.key,
        "models": [model],
    }
    selected: JsonValue = {"provider": "temper", "model": to.model}
    return {
        "providers": {"temper": provider},
        "models": {"large": selected, "small": selected},
        "options": {"disable_provider_auto_update": True},
    }


def _crush_profile(to: Endpoint) -> Profile:
    settings = json.dump_text(_crush_settings(to))
    return Profile({"CRUSH_GLOBAL_CONFIG": FOLDER}, (), {"crush.json": settings})


def _install_crush(to: Endpoint) -> Installation:
    return Installation(
        "XDG_CONFIG_HOME", ".config", "crush/crush.json", _crush_settings(to), "crush"
    )


def _qwen_profile(to: Endpoint) -> Profile:
    model: JsonObject = {
        "id": to.model,
        "name": to.model,
        "envKey": _KEY_VARIABLE,
        "baseUrl": f"{to.url}/v1",
    }
    if to.window is not None:
        model["generationConfig"] = {"contextWindowSize": to.window}
    settings: JsonObject = {
        "modelProviders": {"openai": [model]},
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": to.model},
    }
    # This agent has no permanent installation: its providers are a list, and merging would replace
    # the user's list.
    environment = {
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{FOLDER}/qwen.json",
        _KEY_VARIABLE: to.key,
    }
    return Profile(environment, (), {"qwen.json": json.dump_text(settings)})


def _aider_profile(to: Endpoint) -> Profile:
    model = f"openai/{to.model}"
    limits: JsonObject = {"litellm_provider": "openai", "mode": "chat"}
    if to.window is not None:
        limits |= {"max_input_tokens": to.window, "max_output_tokens": to.output_tokens}
    environment = {
        "OPENAI_API_BASE": f"{to.url}/v1",
        "OPENAI_API_KEY": to.key,
        "AIDER_MODEL": model,
        "AIDER_WEAK_MODEL": model,
        "AIDER_MODEL_METADATA_FILE": f"{FOLDER}/aider.json",
    }
    return Profile(environment, (), {"aider.json": json.dump_text({model: limits})})


def _goose_profile(to: Endpoint) -> Profile:
    environment = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": to.model,
        "OPENAI_HOST": to.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_API_KEY": to.key,
    }
    if to.window is not None:
        environment["GOOSE_CONTEXT_LIMIT"] = f"{to.window}"
    return Profile(environment)


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        "Claude Code",
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        lambda to: Profile(claude_environment(to)),
        _install_claude,
    ),
    "codex": Agent(
        "Codex", "codex", "npm install -g @openai/codex", _codex_profile, _install_codex
    ),
    "opencode": Agent(
        "opencode", "opencode", "npm install -g opencode-ai", _opencode_profile, _install_opencode
    ),
    "qwen-code": Agent("Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", _qwen_profile),
    "crush": Agent(
        "Crush", "crush", "npm install -g @charmland/crush", _crush_profile, _install_crush
    ),
    "aider": Agent("aider", "aider", "pip install aider-chat", _aider_profile),
    "goose": Agent("goose", "goose", "see https://goose-docs.ai", _goose_profile),
}
