"""Requests of simulated clients in any dialect; the client may half-close its connection."""

import asyncio
import re
from dataclasses import dataclass, replace

import h11
import httpx

from benchmarks.faults.demands import Kind, Received
from benchmarks.faults.material import NAMES, ChatRequest, Plan
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object
from tests.simulation.clock import CLOCK
from tests.simulation.dialects import Dialect, convert, read

TEMPER = ("127.0.0.1", 8367)
URL = f"http://{TEMPER[0]}:{TEMPER[1]}"
TIMEOUT_SECONDS = 60.0  # far above Temper's own deadlines
QUEUE_IS_FULL = "The queue is full"
# A replayed stream that had to wait has this comment instead of the header `idempotent-replayed`,
# because its headers were already sent.
_WAITED = b": another replica is answering this request"
_RESPONSE_ID = re.compile(rb'"id":"(resp_[^"]+)"')
_CLIENTS = 5


@dataclass(frozen=True, slots=True)
class Exchange:
    """A finished request; `plan` has its permitted outcomes, `response` the raw response."""

    plan: Plan
    begun: float
    over: float
    seen: Received
    response: httpx.Response | None = None

    @property
    def is_answered(self) -> bool:
        return self.seen.kind is Kind.ANSWER and not self.seen.problem


async def exchange(plan: Plan, dialect: Dialect, *, half_closes: bool = False) -> Exchange:
    """Send a request, and read its response in `dialect`; errors go to `seen.problem`."""
    begun, seen, response = CLOCK.now, Received(), None
    sending = _send_and_half_close(plan.request) if half_closes else _send(plan.request)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            response = await sending
        seen = read(dialect, response)
        seen.problem = seen.problem or _problem_of_advice(response)
    except TimeoutError:
        seen.problem = f"no end after {TIMEOUT_SECONDS:g} s"
    except (httpx.HTTPError, h11.RemoteProtocolError, OSError) as error:
        seen.problem = f"the connection broke: {error!r}"
    return Exchange(plan, begun, CLOCK.now, seen, response)


def in_dialect(plan: Plan, dialect: Dialect) -> Plan:
    """Convert the request to a dialect; the Responses API is asked to store its response."""
    path, body = convert(dialect, plan.request.body)
    if dialect == "responses":
        body = json.dump({**as_object(json.parse(body)), "store": True})
    if dialect != "chat":
        # Only chat completions report that Temper rejected a reply. In other dialects, permit the
        # rejected replies, and the apology that Temper may send instead.
        demand = plan.demand
        has_apology = demand.has_apology or bool(demand.withheld)
        answers = (*demand.answers, *demand.withheld)
        plan = replace(plan, demand=replace(demand, answers=answers, has_apology=has_apology))
    return replace(plan, request=replace(plan.request, path=path, body=body))


def for_model(plan: Plan, model: str) -> Plan:
    """Replace the usual model of a chat request with `model`; leave other requests unchanged."""
    try:
        body = json.parse(plan.request.body)
    except ValueError:
        return plan
    if not model or not isinstance(body, dict) or body.get("model") not in NAMES:
        return plan
    # replace only the name: the request may contain malformed bytes on purpose
    before, after = (b'"model":' + json.dump(name) for name in (body["model"], model))
    changed = plan.request.body.replace(before, after).replace(before.replace(b":", b": "), after)
    return replace(plan, request=replace(plan.request, body=changed))


def is_replayed(sent: Exchange) -> bool:
    """Return whether Temper replayed the response of a request with the same idempotency key."""
    if sent.response is None:
        return False
    return "idempotent-replayed" in sent.response.headers or _WAITED in sent.response.content


def response_id(response: httpx.Response) -> str | None:
    """Return the id in a response of the Responses API; None for other responses."""
    match = _RESPONSE_ID.search(response.content)
    return match[1].decode() if match is not None else None


def continued(plan: Plan, first: httpx.Response, text: str) -> Plan:
    """Return a plan whose request continues a response of the Responses API."""
    changes: JsonObject = {"previous_response_id": response_id(first), "input": text}
    body = json.dump({**as_object(json.parse(plan.request.body)), **changes})
    return replace(plan, request=replace(plan.request, body=body))


def of_another_owner(plan: Plan) -> Plan:
    """Return the same plan with the API key of another client."""
    name, number = plan.request.headers["authorization"].rsplit("-", 1)
    key = f"{name}-{(int(number) + 1) % _CLIENTS}"
    return replace(plan, request=plan.request.with_header("authorization", key))


def _problem_of_advice(response: httpx.Response) -> str:
    """Return the problem of the `Retry-After` header if the queue was full, or an empty string."""
    is_full = response.status_code == 429 and QUEUE_IS_FULL in response.text
    advice = response.headers.get("retry-after", "")
    is_usable = advice.isdecimal() and 1 <= int(advice) <= 60
    return f"Retry-After of a full queue: {advice!r}" if is_full and not is_usable else ""


def open_client() -> httpx.AsyncClient:
    """Return a client that does not load the certificates of the system: that takes 14 ms."""
    return httpx.AsyncClient(
        base_url=URL,
        trust_env=False,
        verify=False,  # noqa: S501 - plain HTTP
        timeout=TIMEOUT_SECONDS,
    )


async def _send(request: ChatRequest) -> httpx.Response:
    async with open_client() as client:
        return await client.post(request.path, content=request.body, headers=request.headers)


async def _send_and_half_close(request: ChatRequest) -> httpx.Response:
    """Send a request, half-close the connection, and read until the server closes it."""
    reader, writer = await asyncio.open_connection(*TEMPER)
    connection = h11.Connection(h11.CLIENT)
    size = f"{len(request.body)}"
    headers = {**request.headers, "host": URL.removeprefix("http://"), "content-length": size}
    head = h11.Request(method="POST", target=request.path, headers=[*headers.items()])
    try:
        for part in (head, h11.Data(request.body), h11.EndOfMessage()):
            writer.write(connection.send(part) or b"")
        writer.write_eof()
        connection.receive_data(await reader.read())
        connection.receive_data(b"")
    finally:
        writer.close()
    return _parse(connection)


def _parse(connection: h11.Connection) -> httpx.Response:
    """Return the final response; Temper also sends interim responses to probe the client."""
    response, content = None, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            content += event.data
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError(f"no whole response: {event}")
    assert response is not None
    return httpx.Response(response.status_code, headers=[*response.headers], content=content)
