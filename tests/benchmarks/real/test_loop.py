"""The benchmark client for real models, tested with scripted replies."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai import AsyncOpenAI

from benchmarks.real.loop import MOST_REQUESTS, Loop
from benchmarks.real.shop import SHOP
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

CANCEL = SHOP.tasks[0]


def call(name: str, arguments: str) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    return {"id": f"call-{name}", "type": "function", "function": function}


class Server:
    """Answers requests with these messages in order, and then always with the last message."""

    def __init__(self, *messages: JsonObject, status: int = 200, attempts: str = "") -> None:
        self.messages = [*messages]
        self.status = status
        self.attempts = attempts
        self.requests: list[JsonObject] = []

    def answer(self, body: bytes) -> bytes:
        request = json.parse(body)
        assert isinstance(request, dict)
        self.requests.append(request)
        message = self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]
        choice: JsonObject = {"index": 0, "finish_reason": "stop", "message": message}
        completion: JsonObject = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        return json.dump(completion if self.status == 200 else message)

    @asynccontextmanager
    async def loop(self) -> AsyncGenerator[Loop, None]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
                yield Loop(client, "m")
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def handler_of(answers: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = answers.answer(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(answers.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if answers.attempts:
                self.send_header("x-temper-attempts", answers.attempts)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def assistant(text: str, *calls: JsonValue) -> JsonObject:
    more: JsonObject = {"tool_calls": [*calls]} if calls else {}
    return {"role": "assistant", "content": text, **more}


async def test_the_loop_runs_calls_and_sends_their_results() -> None:
    server = Server(
        assistant("", call("find_order", '{"customer": "nina weber"}')),
        assistant("", call("cancel_order", '{"order_id": "R-2071"}')),
        assistant("It is canceled."),
        attempts="2",
    )
    async with server.loop() as loop:
        run = await loop.run_task(1, CANCEL, SHOP)
    assert [made.succeeded for made in run.calls] == [True, True]
    assert [reply.attempts for reply in run.replies] == [2, 2, 2]
    assert run.replies[-1].text == "It is canceled."
    messages = server.requests[-1]["messages"]
    assert isinstance(messages, list)
    roles = [message["role"] for message in messages if isinstance(message, dict)]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert "R-2071" in str(messages[3])


async def test_the_loop_ends_after_the_maximum_number_of_requests() -> None:
    server = Server(assistant("", call("find_order", '{"customer": "nina weber"}')))
    async with server.loop() as loop:
        run = await loop.run_task(1, CANCEL, SHOP)
    assert len(run.replies) == len(run.calls) == MOST_REQUESTS
    assert run.replies[-1].attempts is None


async def test_a_call_with_broken_arguments_fails_without_ending_the_run() -> None:
    server = Server(assistant("", call("find_order", "{")), assistant("Sorry."))
    async with server.loop() as loop:
        (made,) = (await loop.run_task(1, CANCEL, SHOP)).calls
    assert made.arguments is None
    assert not made.succeeded


async def test_a_failed_request_ends_the_run_with_its_problem() -> None:
    server = Server({"error": {"message": "broken"}}, status=500)
    async with server.loop() as loop:
        run = await loop.run_task(1, CANCEL, SHOP)
    assert run.replies == ()
    assert "broken" in run.problem
