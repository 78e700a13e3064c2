"""Temper restores reasoning that a client drops: the prompts equal those with the reasoning."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.types import ASGIApp

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.api.hosted import Hosted, open_app
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.guardrails.offer import Mode
from proxy.inference.plan import Policy
from proxy.profiles.known_model import Overrides
from proxy.settings import Settings, load_settings
from tests.fakes import sse
from tests.fakes.reasoning_clients import CLIENTS, EVERYWHERE, ReasoningClient
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import Listening, listening

TEMPLATE = "{% for m in messages %}{{ m.reasoning_content }}{{ tools }}{% endfor %}"


def reply(thoughts: str, *parts: bytes, text: str = "") -> bytes:
    """Return a reply with its reasoning in two pieces and without usage."""
    middle = len(thoughts) // 2
    pieces = (thoughts[:middle], thoughts[middle:])
    reasoning = b"".join(sse.delta({"reasoning_content": piece}) for piece in pieces if piece)
    content = sse.text(text) if text else b""
    reason = "tool_calls" if parts else "stop"
    finish = sse.part([{"finish_reason": reason, "index": 0, "delta": {}}])
    return sse.START + reasoning + content + b"".join(parts) + finish + sse.DONE


def call(name: str, path: str, number: int, index: int = 0) -> bytes:
    arguments = ('{"path": ', f'"{path}"}}')
    return sse.call_delta(name, *arguments, index=index, call_id=f"call_{number}")


# Among these: two calls in one reply, a repeated call with other reasoning, text next to a call.
REPLIES = (
    reply("I list.\nAnd read.", call("list", "/", 1), call("read", "/a", 2, index=1)),
    reply("I list it again.", call("list", "/", 3)),
    reply("Now b.", call("read", "/b", 4), text="I read b."),
    reply("That is all.", text="There are two files."),
    reply("Once more.", call("list", "/", 5)),
    reply("", text="Done."),
)


@asynccontextmanager
async def temper(
    *replies: bytes,
    template: str = TEMPLATE,
    serving: ServerOptions | None = None,
    window: int = 0,
) -> AsyncGenerator[RunningProxy]:
    backend = ScriptedBackend(*replies)
    backend.properties = {"chat_template": template}
    if window:
        backend.properties["default_generation_settings"] = {"n_ctx": window}
    async with listening(backend) as upstream:
        engine = LlamaServer(BackendClient(upstream.url, ""))
        async with in_front_of(engine, serving, backend) as proxy:
            yield proxy


async def converse(client: ReasoningClient) -> None:
    await client.say("What is here?")
    for _ in range(3):
        await client.answer_calls()
    await client.say("And now?")
    await client.answer_calls()


def sent(proxy: RunningProxy) -> list[object]:
    return [request.fields["messages"] for request in proxy.backend.upstream_requests]


async def sent_by(language: str, *, streams: bool, keeps: bool) -> list[object]:
    async with temper(*REPLIES) as proxy:
        client = CLIENTS[language](proxy.client, keeps=keeps, streams=streams)
        await converse(client)
        return sent(proxy)


@pytest.mark.parametrize(("language", "streams"), EVERYWHERE)
async def test_the_prompts_are_equal_if_a_client_drops_reasoning_or_sends_it(
    language: str, streams: bool
) -> None:
    kept = await sent_by(language, streams=streams, keeps=True)
    dropped = await sent_by(language, streams=streams, keeps=False)
    assert "Once more." in str(kept[-1])
    assert dropped == kept


@pytest.mark.parametrize(("language", "streams"), EVERYWHERE)
async def test_the_requests_of_a_client_that_sends_reasoning_are_forwarded_unchanged(
    language: str, streams: bool
) -> None:
    bodies = []
    for serving in (ServerOptions(), ServerOptions(reasoning="off")):
        async with temper(*REPLIES, serving=serving) as proxy:
            await converse(CLIENTS[language](proxy.client, keeps=True, streams=streams))
            bodies.append([request.body for request in proxy.backend.upstream_requests])
    assert bodies[0] == bodies[1]


PLAIN = "{% for m in messages %}{{ m.content }}{{ tools }}{% endfor %}"
COMMENTED = "{# message.reasoning_content is dropped #}" + PLAIN


@pytest.mark.parametrize(
    ("template", "serving"),
    [
        (PLAIN, ServerOptions()),
        (COMMENTED, ServerOptions()),
        (PLAIN, ServerOptions(reasoning="on")),
        (TEMPLATE, ServerOptions(reasoning="off")),
        (TEMPLATE, ServerOptions(workers=2)),
        (TEMPLATE, ServerOptions(replicas=2)),
        (TEMPLATE, ServerOptions(policy=Policy(mode=Mode.OBSERVE))),
        (TEMPLATE, ServerOptions(overrides=Overrides(replay="none"))),
    ],
)
async def test_reasoning_is_not_put_back_if_the_template_or_the_settings_exclude_it(
    template: str, serving: ServerOptions
) -> None:
    async with temper(*REPLIES[:2], template=template, serving=serving) as proxy:
        client = CLIENTS["chat"](proxy.client, keeps=False, streams=False)
        await client.say("What is here?")
        await client.answer_calls()
        assert "I list" not in str(sent(proxy))


async def test_several_processes_put_reasoning_back_if_the_setting_is_on() -> None:
    serving = ServerOptions(workers=2, reasoning="on")
    async with temper(*REPLIES[:2], serving=serving) as proxy:
        client = CLIENTS["chat"](proxy.client, keeps=False, streams=False)
        await client.say("What is here?")
        await client.answer_calls()
        assert "I list.\\nAnd read." in str(sent(proxy)[-1])


async def test_the_setting_replay_last_adds_no_reasoning_before_the_last_user_message() -> None:
    serving = ServerOptions(overrides=Overrides(replay="last"))
    async with temper(*REPLIES, serving=serving) as proxy:
        await converse(CLIENTS["chat"](proxy.client, keeps=False, streams=True))
        messages = sent(proxy)
    assert "Now b." in str(messages[3])
    assert "That is all." not in str(messages[4])
    assert str(messages[5]).count("reasoning_content") == 1


async def test_reasoning_of_one_key_is_not_put_back_for_another() -> None:
    keys = Access({"ann": "key-of-ann", "eve": "key-of-eve"})
    async with temper(*REPLIES[:2], REPLIES[1], serving=ServerOptions(access=keys)) as proxy:
        ann = CLIENTS["chat"](proxy.client, keeps=False, streams=False)
        ann.headers = {"authorization": "Bearer key-of-ann"}
        await ann.say("What is here?")
        eve = CLIENTS["chat"](proxy.client, keeps=False, streams=False)
        eve.headers, eve.history = {"authorization": "Bearer key-of-eve"}, [*ann.history]
        await eve.answer_calls()
        await ann.answer_calls()
        by_eve, by_ann = sent(proxy)[1:]
    assert "I list." not in str(by_eve)
    assert "I list." in str(by_ann)


@pytest.mark.parametrize("streams", [False, True])
async def test_retried_answer_has_the_reasoning_that_the_client_saw(streams: bool) -> None:
    broken = reply("Go to Mars.", sse.call_delta("fly", "{}", call_id="call_0"))
    prompts = []
    for keeps in (True, False):
        async with temper(broken, *REPLIES[1:3]) as proxy:
            client = CLIENTS["chat"](proxy.client, keeps=keeps, streams=streams)
            await client.say("What is here?")
            await client.answer_calls()
            prompts.append(sent(proxy)[-1])
    assert "I list it again." in str(prompts[0])
    assert prompts[0] == prompts[1]


async def test_log_and_headers_report_the_number_of_restored_messages() -> None:
    async with temper(*REPLIES[:2]) as proxy:
        client = CLIENTS["chat"](proxy.client, keeps=False, streams=False)
        await client.say("What is here?")
        client.history += client.results("done")
        answer = await proxy.client.post(client.path, json={"model": "m", **client.body()})
    assert answer.headers["x-temper-repairs"] == "reasoning=1"
    assert answer.headers["x-temper-outcome"] == "clean"


async def test_a_compacted_prompt_equals_that_of_a_client_that_sends_reasoning() -> None:
    """Compaction sees the history with the restored reasoning, so it removes the same parts."""
    prompts = []
    replies = [reply(f"Number {n}. " * 20, call("read", f"/{n}", n)) for n in range(40)]
    for keeps in (True, False):
        async with temper(*replies, window=4096) as proxy:
            client = CLIENTS["chat"](proxy.client, keeps=keeps, streams=False)
            await client.say("Read all.")
            for n in range(39):
                await client.answer_calls(f"text {n} " * 60)
            prompts.append(sent(proxy))
    assert prompts[0] == prompts[1]
    assert "text 0 " * 60 not in str(prompts[0][-1])


def settings_of(upstream: Listening, mode: str = "auto") -> Settings:
    backend: dict[str, object] = {"url": upstream.url, "kind": "llama-server"}
    return load_settings(None, {"backend": backend, "context": {"reasoning": mode}})


async def ask_twice(app: ASGIApp, between: Callable[[], None] = lambda: None) -> None:
    """Let a client that drops reasoning make a call, call `between`, and send the result."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
    ) as http:
        client = CLIENTS["chat"](http, keeps=False, streams=False)
        await client.say("What is here?")
        between()
        await client.answer_calls()


async def test_a_reload_keeps_the_stored_reasoning() -> None:
    backend = ScriptedBackend(*REPLIES[:2])
    backend.properties = {"chat_template": TEMPLATE}
    async with listening(backend) as upstream, open_app(settings_of(upstream)) as app:
        await ask_twice(app, app.renew)
    assert "I list." in str(backend.upstream_requests[-1].fields["messages"])


@pytest.mark.parametrize("mode", ["auto", "on"])
async def test_reasoning_is_put_back_inside_another_asgi_server_only_if_the_setting_is_on(
    mode: str,
) -> None:
    backend = ScriptedBackend(*REPLIES[:2])
    backend.properties = {"chat_template": TEMPLATE}
    async with listening(backend) as upstream:
        hosted = Hosted(lambda: settings_of(upstream, mode))
        await hosted.open()
        await ask_twice(hosted)
        await hosted.close()
    is_sent = "I list." in str(backend.upstream_requests[-1].fields["messages"])
    assert is_sent is (mode == "on")
