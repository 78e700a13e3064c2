"""Profiles from files: shipped profiles are valid, and an operator's profile replaces them."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from proxy.dialects.openai_chat.thinking import RANKS, Effort
from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.tool_prompts.history import CONVENTIONS
from proxy.profiles import files
from proxy.profiles.files import load_profiles
from proxy.profiles.profile import GENERIC, Matching, Profile, Sampling

FOLDER = Path(__file__).parents[3] / "config" / "models"
FILES = sorted(FOLDER.iterdir())
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "models.md"
CONVENTION_NAMES = {convention.name for convention in CONVENTIONS}
SYNTAX_NAMES = {syntax.name for syntax in SYNTAXES}

SMALL = """
name = "mine"
title = "Mine"
sources = ["https://example.org/card"]

[match]
names = ["*mine*"]
"""
WHOLE = (
    SMALL
    + """
architectures = ["mine"]
templates = ["<|mine|>"]

[calls]
syntaxes = ["mistral", "hermes"]
parallel = false
tools = "json"
fallback = "mistral"
aliases = { shell = "bash" }

[answers]
text_policy = "accept"

[reasoning]
replay = "last"
efforts = ["low", "max"]
effort_variable = "strength"
kept_by = {preserve_thinking = true}

[template]
developer = false
system = "first"
alternates = true
prefill = false
control_tokens = ["<|mine|>"]

[launch]
flags = ["--swa-full"]

[sampling]
temperature = 0.5
top_p = 0.9
top_k = 20
min_p = 0
repeat_penalty = 1.05
presence_penalty = 1.5
source = "https://example.org/generation_config.json"

[state]
resets = true
"""
)


def rows_of_the_guide() -> list[list[str]]:
    """Return the rows of the guide's table of models: profile, model, names, syntaxes and more."""
    _, after_heading = GUIDE.read_text(encoding="utf-8").split(
        "## Models of the second half of 2026\n"
    )
    section, *_ = after_heading.split("\n## ")
    return [line[2:-2].split(" | ") for line in section.splitlines() if line.startswith("| `")]


def folder_with(folder: Path, text: str, name: str = "mine.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def refusal(folder: Path) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as caught:
        load_profiles(folder)
    return caught.value


def test_every_shipped_file_is_loaded() -> None:
    assert [profile.name for profile in load_profiles()] == sorted(path.stem for path in FILES)
    assert len(FILES) >= 28


@pytest.mark.parametrize("profile", load_profiles(), ids=lambda profile: profile.name)
def test_every_shipped_profile_has_sources_and_valid_values(profile: Profile) -> None:
    assert profile.sources
    assert set(profile.quirks.syntaxes) <= SYNTAX_NAMES
    assert profile.quirks.syntaxes
    assert {profile.quirks.convention, profile.fallback_convention} <= {"", *CONVENTION_NAMES}
    assert profile.sampling == Sampling() or profile.sampling.source
    assert all(len(token) > 1 for token in profile.quirks.template.control_tokens)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_profiles_contain_no_duplicate_list_items_and_no_empty_values(path: Path) -> None:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    lists = [
        value
        for section in (
            document,
            *(value for value in document.values() if isinstance(value, dict)),
        )
        for value in section.values()
        if isinstance(value, list)
    ]
    assert all(len(set(value)) == len(value) for value in lists)
    assert [key for key, value in document.items() if value in ({}, [])] == []


def test_a_profile_can_name_every_convention_and_every_reasoning_effort() -> None:
    assert set(get_args(files.Convention)) == CONVENTION_NAMES
    assert set(get_args(files.Describer)) == {"template", *CONVENTION_NAMES}
    assert get_args(Effort) == tuple(RANKS)


def test_load_profiles_returns_cached_profiles_at_the_second_call() -> None:
    assert load_profiles()[0] is load_profiles()[0]


def test_a_profile_with_only_required_fields_has_the_generic_quirks(tmp_path: Path) -> None:
    profiles = load_profiles(folder_with(tmp_path, SMALL))
    assert {profile.name: profile for profile in profiles}["mine"] == Profile(
        "mine",
        "Mine",
        GENERIC.quirks,
        Matching(names=("*mine*",)),
        sources=("https://example.org/card",),
    )


def test_every_field_of_a_profile_file_is_loaded(tmp_path: Path) -> None:
    profiles = load_profiles(folder_with(tmp_path, WHOLE))
    assert {profile.name: profile for profile in profiles}["mine"] == Profile(
        "mine",
        "Mine",
        Quirks(
            syntaxes=("mistral", "hermes"),
            text_policy=TextPolicy.ACCEPT,
            convention="json",
            replay="last",
            efforts=("low", "max"),
            effort_variable="strength",
            kept_by={"preserve_thinking": True},
            template=Template(False, "first", True, ("<|mine|>",), False),
            calls_in_parallel=False,
            resets_state=True,
            aliases={"shell": "bash"},
            renders_reasoning=True,
        ),
        Matching(("*mine*",), ("mine",), ("<|mine|>",)),
        fallback_convention="mistral",
        launch_flags=("--swa-full",),
        sampling=Sampling(0.5, 0.9, 20, 0, 1.05, 1.5, "https://example.org/generation_config.json"),
        sources=("https://example.org/card",),
    )


def test_a_profile_of_the_operator_replaces_the_shipped_profile_of_the_same_name(
    tmp_path: Path,
) -> None:
    text = SMALL.replace('name = "mine"', 'name = "qwen3"')
    profiles = load_profiles(folder_with(tmp_path, text, "qwen3.toml"))
    assert [profile.title for profile in profiles if profile.name == "qwen3"] == ["Mine"]
    assert len(profiles) == len(FILES)


def test_files_other_than_toml_in_the_profile_folder_are_skipped(tmp_path: Path) -> None:
    folder_with(tmp_path, "not TOML", "README.md")
    assert load_profiles(tmp_path) == load_profiles()


def test_a_missing_profile_folder_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert str(refusal(missing)) == f"{missing}: is not a folder; create it or remove the setting"


def test_the_error_for_an_unreadable_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").mkdir()
    assert str(refusal(tmp_path)) == f"{tmp_path / 'mine.toml'}: cannot be read: Is a directory"


def test_the_error_for_invalid_toml_names_the_file(tmp_path: Path) -> None:
    problem = refusal(folder_with(tmp_path, "name ="))
    assert problem.setting == str(tmp_path / "mine.toml")
    assert problem.problem.startswith("is not valid TOML: ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SMALL + "nmaes = []\n", "match.nmaes: unknown key; correct its spelling or"),
        (SMALL + "[calls]\nparallel = 'maybe'\n", "calls.parallel: should be a valid boolean"),
        (SMALL + "[calls]\nsyntaxes = ['herpes']\n", "calls.syntaxes.0: should be one of hermes, "),
        (SMALL + "[calls]\ntools = 'xml'\n", "calls.tools: should be "),
        (SMALL + "[template]\nsystem = 'last'\n", "template.system: should be "),
        (SMALL + "[sampling]\ntop_k = 3\n", "sampling: values need a source: the address where"),
        (SMALL + "[sampling]\ntemperature = 20\n", "sampling.temperature: should be less than"),
        (SMALL.replace("*mine*", "*m*"), "match.names.0: must contain at least two characters"),
        (SMALL.replace("[match]\nnames", "[match]\n#"), "the file: match needs names, "),
        (SMALL.replace("sources", "#"), "sources: is missing; add it"),
        (SMALL.replace("https:", "ftp:"), "sources.0: String should match pattern"),
        (SMALL.replace('"mine"', '"generic"'), "the file: the name 'generic' is reserved"),
        (
            SMALL.replace('"mine"', '"yours"'),
            "name: 'yours' is not the name of the file; rename one of them",
        ),
        ("title = 'Mine'", "name: is missing; add it; sources: is missing; add it; match: is "),
    ],
)
def test_the_error_for_an_invalid_profile_names_file_and_field_and_says_what_to_do(
    tmp_path: Path, text: str, problem: str
) -> None:
    refused = refusal(folder_with(tmp_path, text))
    assert refused.setting == str(tmp_path / "mine.toml")
    assert refused.problem.startswith(problem)


def test_a_byte_order_mark_in_a_profile_is_ignored(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SMALL)
    for file in folder.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(load_profiles(folder)) == len(load_profiles()) + 1


def test_the_models_guide_has_a_table_of_at_least_19_models() -> None:
    assert len(rows_of_the_guide()) >= 19


@pytest.mark.parametrize("row", rows_of_the_guide(), ids=lambda row: row[0])
def test_the_row_of_a_model_in_the_guide_has_the_syntaxes_and_architectures_of_its_profile(
    row: list[str],
) -> None:
    profile = next(known for known in load_profiles() if f"`{known.name}`" == row[0])
    assert re.findall("`([^`]+)`", row[3]) == list(profile.quirks.syntaxes)
    assert re.findall("`([^`]+)`", row[2]) == list(profile.matching.architectures)
    assert ("template" in row[2]) == bool(profile.matching.templates)
