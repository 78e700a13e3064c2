import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest
import respx

from proxy.backends.ollama import Ollama
from proxy.backends.ollama_models import Fitting, ModelDetails, OllamaModels, complete_name
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import BackendFailed, BackendRefused, BackendReplyInvalid
from tests.fakes.mocked_pool import MockedPool

Result = TypeVar("Result")

SHOWN: JsonObject = {
    "parameters": 'stop       "<|im_end|>"\nnum_ctx                        16384',
    "template": "{{ .Prompt }}",
    "details": {"family": "qwen3", "parent_model": "qwen3:8b"},
    "model_info": {
        "general.architecture": "qwen3",
        "general.basename": "Qwen3",
        "qwen3.context_length": 40960,
    },
    "capabilities": ["completion", "tools"],
}


def running(**windows: JsonValue) -> JsonObject:
    loaded = [{"name": name, "context_length": window} for name, window in windows.items()]
    return {"models": [*loaded]}


class Server:
    """A fake Ollama with a scripted document for each endpoint; None is a 404 response."""

    fitting: Fitting | None = None

    def __init__(self, num_ctx: int | None = None, **answers: JsonValue) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        self.num_ctx = num_ctx
        self.answers = answers
        for method, name in (
            ("GET", "tags"),
            ("GET", "ps"),
            ("POST", "show"),
            ("POST", "generate"),
        ):
            route = self.routes.route(method=method, url=f"http://host/api/{name}", name=name)
            route.mock(side_effect=self._answer(name))

    def _answer(self, name: str) -> Callable[[httpx.Request], httpx.Response]:
        def answer(_: httpx.Request) -> httpx.Response:
            document = self.answers.get(name)
            if document is None:
                return httpx.Response(404, json={"error": f"no {name}"})
            return httpx.Response(200, content=json.dump(document))

        return answer

    def bodies_sent_to(self, name: str) -> list[bytes]:
        return [call.request.content for call in self.routes[name].calls]

    def use(
        self, work: Callable[[OllamaModels], Awaitable[Result]], *, timeout: float = 5.0
    ) -> Result:
        """Return the result of `work`, called with the models of this server."""

        async def do() -> Result:
            wire = httpx.MockTransport(self.routes.async_handler)
            connection = BackendClient("http://host", pool=MockedPool(wire))
            try:
                models = OllamaModels(
                    Ollama(connection), self.num_ctx, self.fitting, timeout=timeout
                )
                return await work(models)
            finally:
                await connection.close()

        return asyncio.run(do())


def test_entries_without_a_name_are_not_listed() -> None:
    server = Server(tags={"models": [{"name": "a:latest", "size": 1}, {"size": 2}, 3]})
    models = server.use(lambda models: models.list_models())
    assert [model.id for model in models] == ["a:latest"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [({"models": None}, BackendReplyInvalid), ([1], BackendReplyInvalid), (None, BackendRefused)],
)
def test_a_missing_or_invalid_list_of_models_is_an_error(
    answer: JsonValue, error: type[BackendFailed]
) -> None:
    with pytest.raises(error):
        Server(tags=answer).use(lambda models: models.list_models())


def test_the_method_show_caches_a_description_until_refresh_is_set() -> None:
    server = Server(show=SHOWN)

    async def show_three_times(models: OllamaModels) -> list[ModelDetails | None]:
        return [
            await models.show("mine"),
            await models.show("mine"),
            await models.show("mine", refresh=True),
        ]

    shown = ModelDetails(
        ("mine", "Qwen3", "qwen3:8b"),
        "qwen3",
        frozenset({"completion", "tools"}),
        trained=40960,
        preset=16384,
    )
    assert server.use(show_three_times) == [shown] * 3
    assert server.bodies_sent_to("show") == [b'{"model":"mine"}'] * 2


def test_missing_or_invalid_details_of_a_model_are_unknown() -> None:
    bare: JsonObject = {"details": {"family": "llama"}, "parameters": "num_ctx many"}
    shown = Server(show=bare).use(lambda models: models.show("m"))
    assert shown == ModelDetails(("m",), "llama")
    assert shown.has_capability("tools") is None
    assert Server(show={}).use(lambda models: models.show("m")) == ModelDetails(("m",))


def test_the_method_show_returns_none_for_a_missing_model() -> None:
    assert Server().use(lambda models: models.show("m")) is None


async def window_of(models: OllamaModels) -> int | None:
    await models.show("m")
    return await models.window("m")


@pytest.mark.parametrize(
    ("num_ctx", "answers", "window"),
    [
        (8192, {"show": SHOWN, "ps": running(m=4096)}, 8192),
        (65536, {"show": SHOWN}, 40960),
        (8192, {}, 8192),
        (None, {"show": SHOWN, "ps": running(**{"m:latest": 4096})}, 4096),
        (None, {"show": SHOWN, "ps": running(other=4096)}, 16384),
        (None, {"show": SHOWN, "ps": running(m=None)}, 16384),
        (None, {"show": {}, "ps": {"models": None}}, None),
        (None, {}, None),
    ],
)
def test_the_method_window_returns_the_window_of_the_next_request(
    num_ctx: int | None, answers: JsonObject, window: int | None
) -> None:
    assert Server(num_ctx, **answers).use(window_of) == window


async def choose_window_twice(models: OllamaModels) -> tuple[int | None, int | None]:
    await models.show("m")
    first = await models.choose_window("m")
    return first, await models.choose_window("m")


@pytest.mark.parametrize(
    ("num_ctx", "answers", "window"),
    [
        (8192, {"show": SHOWN, "ps": running(m=4096)}, 8192),
        (65536, {"show": SHOWN, "ps": running()}, 40960),
        (None, {"show": SHOWN, "ps": running(m=4096)}, 4096),
        (None, {"show": SHOWN, "ps": running()}, None),
    ],
)
def test_choose_window_keeps_its_first_choice_for_a_known_model(
    num_ctx: int | None, answers: JsonObject, window: int | None
) -> None:
    server = Server(num_ctx, **answers)
    assert server.use(choose_window_twice) == (window, window)
    assert len(server.bodies_sent_to("ps")) == 1


def test_choose_window_does_not_cache_the_window_of_an_unknown_model() -> None:
    server = Server(8192)
    assert server.use(choose_window_twice) == (8192, 8192)
    assert len(server.bodies_sent_to("ps")) == 2


@pytest.mark.parametrize(
    ("num_ctx", "loaded", "window"), [(None, {}, 4096), (8192, {}, 8192), (None, {"m": 2048}, 2048)]
)
def test_a_client_window_applies_if_none_is_configured_or_loaded(
    num_ctx: int | None, loaded: JsonObject, window: int
) -> None:
    async def choose_window(models: OllamaModels) -> tuple[int | None, int | None]:
        unseen = await models.choose_window("m", 4096)
        await models.show("m")
        assert unseen == window
        return await models.choose_window("m", 4096), await models.choose_window("m", 5120)

    server = Server(num_ctx, show=SHOWN, ps=running(**loaded))
    assert server.use(choose_window) == (window, window)


def test_a_chosen_window_is_reported_even_if_the_model_was_reloaded() -> None:
    server = Server(show=SHOWN, ps=running(m=4096))

    async def read_window_after_reload(models: OllamaModels) -> int | None:
        await choose_window_twice(models)
        server.answers["ps"] = running(m=2048)
        return await models.window("m")

    assert server.use(read_window_after_reload) == 4096


@pytest.mark.parametrize(("loaded", "unloads"), [({}, 1), ({"m": 4096}, 0)])
def test_only_models_loaded_for_temper_are_unloaded(loaded: JsonObject, unloads: int) -> None:
    server = Server(show=SHOWN, ps=running(**loaded))

    async def load_and_unload(models: OllamaModels) -> None:
        await choose_window_twice(models)
        await models.unload()
        await models.unload()

    server.use(load_and_unload)
    assert server.bodies_sent_to("generate") == [b'{"model":"m","keep_alive":0}'] * unloads


def test_the_method_show_returns_none_if_the_server_does_not_respond_in_time() -> None:
    server = Server()

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    server.routes["show"].mock(side_effect=never)
    assert server.use(lambda models: models.show("m"), timeout=0.01) is None


def fitting_server(num_ctx: int | None = None, **loaded: JsonValue) -> Server:
    """A fake Ollama with two models; a window of as many tokens as a model has bytes fits."""
    sizes = {"other:latest": 1, "mine:latest": 30_000}
    entries: list[JsonValue] = [{"name": name, "size": size} for name, size in sizes.items()]
    server = Server(num_ctx, show=SHOWN, tags={"models": entries}, ps=running(**loaded))
    server.fitting = lambda details, size: size if "qwen3.context_length" in details else None
    return server


async def window_and_choice(models: OllamaModels) -> tuple[int | None, int | None]:
    await models.show("mine")
    return await models.window("mine"), await models.choose_window("mine")


def test_a_window_that_fits_into_memory_takes_precedence_over_the_modelfile() -> None:
    assert fitting_server().use(window_and_choice) == (30_000, 30_000)


def test_the_configured_or_loaded_window_takes_precedence_over_a_fitting_window() -> None:
    assert fitting_server(5000).use(window_and_choice) == (5000, 5000)
    assert fitting_server(**{"mine:latest": 7000}).use(window_and_choice) == (7000, 7000)


def test_no_fitting_window_is_computed_if_the_size_of_the_model_is_unknown() -> None:
    server = fitting_server()
    sizeless: JsonObject = {"models": [{"name": "mine:latest"}]}
    for tags in (sizeless, None):
        server.answers["tags"] = tags
        assert server.use(window_and_choice) == (16_384, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", "qwen3:latest"),
        ("Qwen3:8B", "qwen3:8b"),
        ("library/qwen3", "qwen3:latest"),
        ("registry.ollama.ai/library/qwen3:8b", "qwen3:8b"),
        ("hf.co/someone/model-GGUF", "hf.co/someone/model-gguf:latest"),
    ],
)
def test_complete_name_normalizes_model_names_like_ollama(name: str, expected: str) -> None:
    assert complete_name(name) == expected
