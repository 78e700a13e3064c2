"""F01 to F07: backends that are down, silent, disconnecting, or not HTTP servers."""

import asyncio
import logging

import pytest

from benchmarks.faults.toxics import (
    LAST_CHUNK,
    STREAM_HEAD,
    Then,
    Toxic,
    chunk,
    chunked,
    paced,
    repeats,
    sends,
    stays,
    whole,
)
from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.transport import Timeouts
from proxy.observability.logs import TextFormatter
from tests.fakes.answers import Answer
from tests.fakes.loopback import own_address
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.faults.proxies import (
    PLAIN,
    TEMPER,
    WITH_TOOLS,
    Wire,
    before_url,
    is_bad_gateway,
    poisoned,
)
from tests.faults.wires import CALL, COMPLETION, REPLIES

QUICK = Timeouts(first_byte=0.05)
STRICT = Timeouts(first_byte=5, idle=0.05)
FREQUENT_KEEP_ALIVES = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
AT_ONCE = 0.05


def is_error(answer: Answer, code: str, status: int = 502, *, name: str = TEMPER) -> bool:
    """Return whether a response is this error, as a status or, after an early 200, as an event.

    For a peer, any error counts.
    """
    assert answer.error is not None, answer.body
    if name != TEMPER:
        return is_bad_gateway(name, answer)
    return (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.fault("F01")
async def test_unreachable_backend_is_an_immediate_502(*, subject: str, stream: bool) -> None:
    async with listening(ScriptedBackend(), own_address()) as gone:
        url = gone.url
    async with before_url(subject, url) as proxy:
        took, clock = [], asyncio.get_running_loop().time
        for _ in range(5):
            begun = clock()
            answer = await proxy.ask(PLAIN, stream=stream)
            took.append(clock() - begun)
            assert is_bad_gateway(subject, answer)
    assert min(took) < AT_ONCE


@pytest.mark.fault("F01")
async def test_unreachable_backend_has_the_code_backend_unavailable(*, stream: bool) -> None:
    async with listening(ScriptedBackend(), own_address()) as gone:
        url = gone.url
    async with before_url("temper", url) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert is_error(answer, "backend_unavailable")


@pytest.mark.fault("F01")
async def test_backend_that_drops_connections_receives_one_request(
    *, subject: str, stream: bool
) -> None:
    async with poisoned(*[sends(b"")] * 9, name=subject) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert is_bad_gateway(subject, answer)


@pytest.mark.fault("F02")
async def test_a_backend_that_sends_nothing_is_a_504_backend_timeout(
    *, subject: str, wire: Wire, stream: bool
) -> None:
    silent = sends(b"", then=Then.SILENCE)
    async with poisoned(*[silent] * 9, name=subject, wire=wire, timeouts=QUICK) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert subject != TEMPER or len(proxy.backend.upstream_requests) == 1
    assert is_error(answer, "backend_timeout", 504, name=subject)


@pytest.mark.fault("F02")
async def test_a_response_head_without_a_body_is_a_504_backend_timeout(
    *, subject: str, wire: Wire, stream: bool
) -> None:
    silent = sends(STREAM_HEAD, then=Then.SILENCE)
    async with poisoned(*[silent] * 9, name=subject, wire=wire, timeouts=QUICK) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert is_error(answer, "backend_timeout", 504, name=subject)


@pytest.mark.fault("F02")
async def test_a_stream_receives_keep_alives_while_its_backend_is_silent(wire: Wire) -> None:
    silent = sends(b"", then=Then.SILENCE)
    slow = Timeouts(first_byte=0.1)
    async with poisoned(silent, wire=wire, timeouts=slow, serving=FREQUENT_KEEP_ALIVES) as proxy:
        answer = await proxy.ask(PLAIN, stream=True)
    assert is_error(answer, "backend_timeout", 200)
    assert answer.deltas.count({}) >= 2
    assert not answer.is_done


@pytest.mark.fault("F03")
async def test_a_reply_that_stalls_ends_at_the_idle_deadline(
    *, subject: str, wire: Wire, stream: bool
) -> None:
    begun = sends(chunked(REPLIES[wire].begun, is_whole=False), then=Then.SILENCE)
    strict = Timeouts(first_byte=0.3) if wire is Wire.OLLAMA else STRICT
    async with poisoned(*[begun] * 9, name=subject, wire=wire, timeouts=strict) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert is_error(answer, "backend_timeout", 200 if stream else 504, name=subject)
    assert subject != TEMPER or not answer.is_done


@pytest.mark.fault("F03")
async def test_a_slow_json_body_is_read_completely(*, subject: str, stream: bool) -> None:
    reply = whole(COMPLETION)
    pieces = [reply[at : at + 40] for at in range(0, len(reply), 40)]
    timeouts = Timeouts(first_byte=0.4, idle=0.4)
    async with poisoned(paced(*pieces, seconds=0.08), name=subject, timeouts=timeouts) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")


@pytest.mark.fault("F03")
async def test_a_slow_stream_is_read_completely(*, wire: Wire, stream: bool) -> None:
    reply = REPLIES[wire]
    pieces = [reply.begun, *[reply.sign_of_life] * 4, reply.more, reply.end]
    slow = paced(STREAM_HEAD, *map(chunk, pieces), LAST_CHUNK, seconds=0.08)
    timeouts = Timeouts(first_byte=0.4, idle=0.4)
    async with poisoned(slow, wire=wire, timeouts=timeouts) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")


@pytest.mark.fault("F03")
async def test_progress_events_do_not_extend_the_total_deadline(
    *, wire: Wire, stream: bool
) -> None:
    """Progress events without a reply extend the idle deadline, but not the total deadline."""
    endless = repeats(STREAM_HEAD, chunk(REPLIES[wire].sign_of_life), seconds=0.005)
    strict = ServerOptions(timeouts=StreamTimeouts(deadline=0.2))
    async with poisoned(endless, wire=wire, serving=strict) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert answer.error is not None
    assert answer.error["code"] == "backend_timeout"
    assert not answer.is_done


@pytest.mark.fault("F04")
@pytest.mark.parametrize("ping", [REPLIES[Wire.OPENAI].sign_of_life, b": ping\n\n"])
async def test_long_prefill_is_tolerated_with_keep_alives(*, ping: bytes, stream: bool) -> None:
    reply = REPLIES[Wire.OPENAI]
    slow = paced(STREAM_HEAD, *[chunk(ping)] * 12, chunk(reply.reply), LAST_CHUNK, seconds=0.04)
    strict = Timeouts(first_byte=0.4, idle=0.4)
    frequent = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.03))
    async with poisoned(slow, timeouts=strict, serving=frequent) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")
    assert not stream or answer.deltas.count({}) >= 2


CUT_SHORT = (
    pytest.param(sends(b""), id="hang-up"),
    pytest.param(sends(b"", then=Then.HALF_CLOSE), id="half-close"),
    pytest.param(sends(b"", then=Then.RESET), id="reset"),
    pytest.param(sends(b"HTTP/1.1 200 OK\r\ncontent-le"), id="half a head"),
    pytest.param(sends(whole(b'{"choices": [' + b" " * 99)[:-50]), id="short body"),
    pytest.param(
        sends(whole(b'{"choices": [' + b" " * 99)[:-50], then=Then.HALF_CLOSE), id="short and half"
    ),
)


@pytest.mark.fault("F05")
@pytest.mark.parametrize("cut", CUT_SHORT)
async def test_a_response_cut_off_in_its_head_or_body_is_a_502(
    *, subject: str, cut: Toxic, stream: bool
) -> None:
    async with poisoned(*[cut] * 9, name=subject) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert is_bad_gateway(subject, answer)


@pytest.mark.fault("F05")
async def test_a_request_on_a_connection_that_was_closed_while_idle_is_sent_again(
    *, stream: bool
) -> None:
    """The next request is sent again, because no byte of a response has arrived."""
    reply = whole(COMPLETION)
    async with poisoned(stays(reply), sends(reply)) as proxy:
        first = await proxy.ask(PLAIN, stream=stream)
        second = await proxy.ask(PLAIN, stream=stream)
    assert first.text == second.text == "It is sunny."


@pytest.mark.fault("F06")
@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET, Then.HALF_CLOSE])
async def test_truncated_reply_is_an_error(
    *, subject: str, wire: Wire, then: Then, stream: bool
) -> None:
    half = paced(chunked(REPLIES[wire].begun, is_whole=False), seconds=0.02, then=then)
    async with poisoned(*[half] * 9, name=subject, wire=wire) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert is_error(answer, "backend_unavailable", 200 if stream else 502, name=subject)
    assert subject != TEMPER or not answer.is_done
    assert subject != TEMPER or len(proxy.backend.upstream_requests) == 1


@pytest.mark.fault("F06")
@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET, Then.HALF_CLOSE])
async def test_a_call_cut_off_with_its_reply_is_never_returned(
    *, subject: str, wire: Wire, then: Then, stream: bool
) -> None:
    half = paced(chunked(REPLIES[wire].half_call, is_whole=False), seconds=0.02, then=then)
    async with poisoned(*[half] * 9, name=subject, wire=wire) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
    assert answer.runnable == []
    assert stream or b"Paris" not in answer.body
    assert is_error(answer, "backend_unavailable", 200 if stream else 502, name=subject)


@pytest.mark.fault("F06")
@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET])
async def test_truncated_body_with_a_call_is_an_error(
    *, subject: str, then: Then, stream: bool
) -> None:
    half = whole(CALL)[:-40]
    async with poisoned(*[paced(half, seconds=0.02, then=then)] * 9, name=subject) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
    assert answer.calls == []
    assert is_bad_gateway(subject, answer)


GARBAGE = (
    b"SSH-2.0-OpenSSH_9.9 \x00\xff\x1b[31m\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"HTTP/9.9 banana\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
)


@pytest.mark.fault("F07")
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_invalid_http_is_a_502(*, subject: str, garbage: bytes, stream: bool) -> None:
    async with poisoned(*[sends(garbage)] * 9, name=subject) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert is_bad_gateway(subject, answer)
    assert b"OpenSSH" not in answer.body


@pytest.mark.fault("F07")
@pytest.mark.parametrize("size", [1, 7])
async def test_invalid_http_in_small_segments_is_a_502(*, wire: Wire, size: int) -> None:
    async with poisoned(sends(GARBAGE[0], size=size), wire=wire) as proxy:
        answer = await proxy.ask(PLAIN)
    assert is_error(answer, "backend_protocol_error")


@pytest.mark.fault("F07")
async def test_bytes_of_an_invalid_response_are_logged_escaped_and_only_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "proxy")
    async with poisoned(sends(GARBAGE[0]), sends(whole(b"<\x1b[31m>"))) as proxy:
        answers = [await proxy.ask(PLAIN), await proxy.ask(PLAIN)]
    assert all(is_error(answer, "backend_protocol_error") for answer in answers)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any("SSH-2.0-OpenSSH_9.9 \\x00\\xff\\x1b[31m" in line for line in messages)
    assert any("<\\x1b[31m>" in line for line in messages)
    above_debug = [record for record in caplog.records if record.levelno > logging.DEBUG]
    shown = "".join(TextFormatter().format(record) for record in above_debug)
    assert "OpenSSH" not in shown
    assert "[31m" not in shown
