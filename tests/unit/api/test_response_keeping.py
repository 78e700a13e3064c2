import asyncio
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.api.response_keeping import WaitForWriting, examine_keeping, keeping_responses
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings, load_settings
from proxy.state.responses_file import ResponsesFile, open_responses
from tests.fakes.asgi import HandMadeClient

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
def test_without_a_file_responses_are_kept_where_one_process_sees_them_all(
    sections: dict[str, dict[str, object]], keeps: bool
) -> None:
    examine_keeping(settings_of(**sections))
    with keeping_responses(settings_of(**sections)) as store:
        assert (store is not None) is keeps
        assert not isinstance(store, ResponsesFile)


def test_with_a_file_all_workers_keep_them_within_the_bounds_that_are_set(tmp_path: Path) -> None:
    kept = {"path": str(tmp_path / "kept.sqlite"), "store_responses": 1}
    settings = settings_of(server={"workers": 2}, responses=kept)
    with keeping_responses(settings) as store:
        assert isinstance(store, ResponsesFile)
        store.keep("me", ANSWER)
        store.keep("me", StoredResponse("resp_2", [], [], b"{}"))
        assert store.find("me", "resp_1") is None
        assert store.find("me", "resp_2") is not None
    examine_keeping(settings)


def test_a_file_that_cannot_be_used_is_found_before_anything_is_served(tmp_path: Path) -> None:
    settings = settings_of(responses={"path": str(tmp_path)})
    with pytest.raises(InvalidConfiguration, match=r"responses\.path: .*Is a directory"):
        examine_keeping(settings)
    with (
        pytest.raises(InvalidConfiguration, match=r"responses\.path: .*Is a directory"),
        keeping_responses(settings),
    ):
        pytest.fail("it was opened")


def test_an_answer_ends_when_it_can_be_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    client = HandMadeClient(method="POST", path="/v1/responses")
    found: list[tuple[object, bool]] = []
    with open_responses(path) as file, open_responses(path) as other:

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            file.keep("me", ANSWER)
            await send({"type": "http.response.body", "body": b"b", "more_body": False})

        async def look(message: Message) -> None:
            is_there = await asyncio.to_thread(other.find, "me", "resp_1") is not None
            found.append((message.get("body"), is_there))

        async def scene() -> None:
            await WaitForWriting(answer, file)(client.scope, client.receive, look)

        asyncio.run(scene())
    assert found == [(None, False), (b"a", False), (b"b", True)]
