import re
from pathlib import Path

import pytest

from proxy.dialects.handling import Refused
from proxy.dialects.ollama_chat.schema import FIELDS, OPTIONS, Option
from proxy.dialects.openai_chat.schema import ChatCompletionRequest


def test_the_table_names_every_field_of_a_chat_completion_request() -> None:
    assert set(ChatCompletionRequest.model_fields) <= set(FIELDS)


def test_the_guide_tells_what_becomes_of_every_field() -> None:
    guide = Path(__file__).parents[4] / "docs" / "guides" / "ollama.md"
    table = guide.read_text(encoding="utf-8").partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(named) == {*FIELDS, "enable_thinking"}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "name", [name for name, fate in FIELDS.items() if isinstance(fate, Option)]
)
def test_what_becomes_an_option_is_one_that_ollama_knows(name: str) -> None:
    fate = FIELDS[name]
    assert isinstance(fate, Option)
    assert fate.name in OPTIONS


@pytest.mark.parametrize(
    "name", [name for name, fate in FIELDS.items() if isinstance(fate, Refused)]
)
def test_every_refusal_says_what_to_do_instead(name: str) -> None:
    fate = FIELDS[name]
    assert isinstance(fate, Refused)
    assert fate.remedy.endswith(".")
