import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.api.dialects import CHAT
from proxy.api.idempotency import ALONE
from proxy.api.response_keeping import (
    examine_keeping,
    examine_state,
    mark_unshared_answers,
    open_dialects,
    open_response_store,
    wait_for_writing,
)
from proxy.api.shared_answers import SharedAnswers
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import InvalidConfiguration
from proxy.observability.observers import Observers
from proxy.settings import Settings, load_settings
from proxy.state.memory_responses import MemoryStore
from proxy.state.responses_file import ResponsesFile, open_responses
from proxy.state.shared_responses import SharedResponses
from tests.fakes.asgi import HandMadeClient, endpoint_of

ANSWER = StoredResponse("resp_1", [], [], b"{}")


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, {"backend": {"url": "http://127.0.0.1:1"}, **sections})


@pytest.mark.parametrize(
    ("sections", "keeps"),
    [
        ({}, True),
        ({"responses": {"store": "off"}}, False),
        ({"server": {"workers": 2}}, False),
        ({"responses": {"store_responses": 5, "store_seconds": 1}}, True),
    ],
)
def test_responses_are_stored_in_memory_only_if_there_is_one_process_and_no_file(
    sections: dict[str, dict[str, object]], keeps: bool
) -> None:
    examine_keeping(settings_of(**sections))
    with open_response_store(settings_of(**sections)) as store:
        assert (store is not None) is keeps
        assert not isinstance(store, ResponsesFile)


def test_several_workers_store_responses_in_a_file_up_to_the_configured_limit(
    tmp_path: Path,
) -> None:
    section = {"path": str(tmp_path / "kept.sqlite"), "store_responses": 1}
    settings = settings_of(server={"workers": 2}, responses=section)
    with open_response_store(settings) as store:
        assert isinstance(store, ResponsesFile)
        store.keep("me", ANSWER)
        store.keep("me", StoredResponse("resp_2", [], [], b"{}"))
        assert store.find("me", "resp_1") is None
        assert store.find("me", "resp_2") is not None
    examine_keeping(settings)


def test_an_unusable_file_is_reported_before_serving(tmp_path: Path) -> None:
    settings = settings_of(responses={"path": str(tmp_path)})
    with pytest.raises(InvalidConfiguration, match=r"responses\.path: .*Is a directory"):
        examine_keeping(settings)
    with (
        pytest.raises(InvalidConfiguration, match=r"responses\.path: .*Is a directory"),
        open_response_store(settings),
    ):
        pytest.fail("it was opened")


def test_the_last_chunk_is_sent_only_after_the_response_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    client = HandMadeClient(method="POST", path="/v1/responses")
    states: list[tuple[object, bool]] = []
    with open_responses(path) as file, open_responses(path) as other:

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            file.keep("me", ANSWER)
            await send({"type": "http.response.body", "body": b"b", "more_body": False})

        async def look(message: Message) -> None:
            is_there = await asyncio.to_thread(other.find, "me", "resp_1") is not None
            states.append((message.get("body"), is_there))

        async def scene() -> None:
            await wait_for_writing(endpoint_of(answer), file)(client.connection.wrap(send=look))

        asyncio.run(scene())
    assert states == [(None, False), (b"a", False), (b"b", True)]


async def events_of(
    *messages: Message, is_shared: bool, body: bytes = b"{}", loses_store: bool = False
) -> list[Message]:
    """Return the sent messages; with `loses_store`, the store fails after the request was read."""
    shared = is_shared
    client = HandMadeClient(body, method="POST", path="/v1/responses")

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal shared
        await receive()
        shared = shared and not loses_store
        for message in messages:
            await send(message)

    await client.ask(mark_unshared_answers(endpoint_of(answer), lambda: shared))
    return client.got


def start(status: int = 200, kind: bytes = b"application/json") -> Message:
    headers = [(b"content-type", kind)]
    return {"type": "http.response.start", "status": status, "headers": headers}


END: Message = {"type": "http.response.body", "body": b"{}", "more_body": False}
STREAM = b"text/event-stream; charset=utf-8"


@pytest.mark.parametrize("kind", [b"application/json", STREAM], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("is_shared", "loses_store", "body", "status", "is_marked"),
    [
        (True, False, b"{}", 200, False),
        (True, True, b"{}", 200, True),
        (False, False, b"{}", 200, True),
        (False, False, b'{"store": true}', 200, True),
        (False, False, b'{"store": false}', 200, False),
        (False, False, b"no JSON", 200, True),
        (False, False, b"{}", 400, False),
    ],
    ids=["shared", "lost", "no store", "store true", "store false", "not JSON", "an error"],
)
async def test_a_response_that_could_not_be_stored_for_other_replicas_has_the_state_header(
    kind: bytes, is_shared: bool, loses_store: bool, body: bytes, status: int, is_marked: bool
) -> None:
    answer = (start(status, kind), {**END, "more_body": True}, END)
    messages = await events_of(*answer, is_shared=is_shared, body=body, loses_store=loses_store)
    assert [event["type"] for event in messages] == [event["type"] for event in answer]
    assert (ALONE in messages[0]["headers"]) is is_marked


async def test_the_head_of_a_stream_is_sent_at_once_but_the_head_of_json_with_the_body() -> None:
    assert len(await events_of(start(kind=STREAM), is_shared=True)) == 1
    assert await events_of(start(), is_shared=True) == []


NOWHERE = "redis://127.0.0.1:1"
CLIENT = "proxy.state.valkey"

with_client = pytest.mark.skipif(
    importlib.util.find_spec("valkey") is None, reason="needs the extra `state`"
)


def shared_settings_of(url: str = NOWHERE, **sections: dict[str, object]) -> Settings:
    backend = {"url": "http://127.0.0.1:1"}
    return load_settings(None, {"backend": backend, "state": {"url": url}, **sections})


async def test_without_the_setting_state_url_nothing_is_shared_and_valkey_is_not_imported() -> None:
    before = {*sys.modules}
    settings = shared_settings_of("")
    examine_state(settings)
    async with open_dialects(settings, Observers()) as dialects:
        assert isinstance(dialects.store, MemoryStore)
        assert dialects.share is None
        assert all(route.is_shared is None for route in dialects)
    assert CLIENT not in {*sys.modules} - before


async def test_the_setting_state_url_is_an_error_if_the_client_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "proxy.state.valkey", None)
    with pytest.raises(InvalidConfiguration, match=r"state\.url: .*temper-proxy\[state\]"):
        examine_state(shared_settings_of())
    with pytest.raises(InvalidConfiguration, match=r"temper-proxy\[state\]"):
        async with open_dialects(shared_settings_of(), Observers()):
            pytest.fail("it was opened")


@with_client
async def test_idempotent_answers_and_stored_responses_are_shared_if_state_url_is_set() -> None:
    examine_state(shared_settings_of())
    async with open_dialects(shared_settings_of(server={"workers": 2}), Observers()) as dialects:
        assert isinstance(dialects.store, SharedResponses)
        assert dialects.share is not None
        assert isinstance(dialects.share(CHAT, 1.0), SharedAnswers)
        shared = [route.is_shared is not None for route in dialects]
        assert shared == [
            False,
            False,
            True,
            False,
            False,
        ]  # only the Responses dialect stores responses


@with_client
@pytest.mark.parametrize(
    ("responses", "kind"), [({"store": "off"}, type(None)), ({"path": "FILE"}, ResponsesFile)]
)
async def test_only_idempotent_answers_are_shared_if_responses_are_in_a_file_or_disabled(
    responses: dict[str, object], kind: type, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("kept") / "kept.sqlite"
    section = {name: str(file) if value == "FILE" else value for name, value in responses.items()}
    async with open_dialects(shared_settings_of(responses=section), Observers()) as dialects:
        assert isinstance(dialects.store, kind)
        assert all(route.is_shared is None for route in dialects)
        assert dialects.share is not None
