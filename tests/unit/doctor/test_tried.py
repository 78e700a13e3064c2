import io
from typing import cast

import httpx
import pytest
from rich.console import Console

from proxy.conversation.json import JsonObject
from proxy.doctor.finding import Examined, fine, wrong
from proxy.doctor.target import Target
from proxy.doctor.tried import document, table, tried_model
from proxy.guardrails.model_quirks import GENERIC
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC as PROFILE
from proxy.profiles.recognition import Evidence, Recognition
from proxy.settings import Settings
from proxy.state.tried_models import TriedModel, digest

pytestmark = pytest.mark.anyio

FOUND = (
    Examined("version", fine("llama-server, build b1")),
    Examined("window", fine("a").measuring(window=8192)),
    Examined("forced call", fine("b").measuring(calls="at once")),
    Examined("overflow", wrong("c", "d")),
    Examined("speed", fine("e").measuring(writes_per_second=35.26)),
)


async def made() -> TriedModel:
    known = KnownModel(
        "m",
        Recognition(PROFILE, "none"),
        GENERIC,
        evidence=Evidence(("m",), template="<think>"),
        identity="m.gguf",
        engine="vLLM",
        lacks=("named_choice",),
    )
    async with httpx.AsyncClient() as direct, httpx.AsyncClient() as temper:
        target = Target(Settings(), "m", known, direct, temper, "")
        return tried_model(target, FOUND, "1.2")


async def test_what_was_measured_is_put_together() -> None:
    tried = await made()
    assert (tried.name, tried.identity, tried.template) == ("m", "m.gguf", digest("<think>"))
    assert (tried.server, tried.temper, tried.failed) == (
        "llama-server, build b1",
        "1.2",
        ("overflow",),
    )
    assert tried.measured == {
        "capabilities": ["tools", "thinking"],
        "engine": "vLLM",
        "engine_lacks": ["named_choice"],
        "window": 8192,
        "calls": "at once",
        "writes_per_second": 35.26,
    }
    assert tried.tried_at.endswith("+00:00")


async def test_a_table_shows_what_matters_for_a_choice_and_the_document_everything() -> None:
    tried = await made()
    shown = io.StringIO()
    Console(file=shown, width=200).print(table([tried]))
    head, row = shown.getvalue().splitlines()
    assert head.split() == [
        *("model", "server", "tried", "calls", "window"),
        *("reads/s", "writes/s", "failed"),
    ]
    assert row.split()[-5:] == ["once", "8192", "-", "35", "overflow"]
    (entry,) = cast("list[JsonObject]", document([tried])["models"])
    assert (entry["id"], entry["measured"]) == ("m", tried.measured)
