import pytest

from proxy.observability.trace_context import TraceContext, new_span_id, state_of, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_traceparent_gives_a_new_span_id_with_the_span_of_the_client_as_parent() -> None:
    trace = trace_of(f"00-{TRACE}-{PARENT}-01")
    assert trace.trace_id == int(TRACE, 16)
    assert trace.parent_id == int(PARENT, 16)
    assert trace.span_id not in (0, trace.parent_id)
    assert trace.is_sampled


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("02", False), ("03", True)])
def test_the_sampled_flag_is_read_from_the_traceparent(flags: str, is_sampled: bool) -> None:
    assert trace_of(f"00-{TRACE}-{PARENT}-{flags}").is_sampled is is_sampled


def test_a_traceparent_of_a_later_version_may_have_more_fields() -> None:
    assert trace_of(f"01-{TRACE}-{PARENT}-01-more").trace_id == int(TRACE, 16)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-01\r\nx: y",
    ],
)
def test_an_invalid_traceparent_starts_a_new_trace(header: str) -> None:
    trace = trace_of(header)
    assert trace.trace_id not in (0, int(TRACE, 16))
    assert trace.parent_id is None
    assert trace.is_sampled


def test_header_returns_a_traceparent_with_the_given_span_id() -> None:
    trace = TraceContext(int(TRACE, 16), 5, is_sampled=False)
    assert trace.header(0xAB) == f"00-{TRACE}-00000000000000ab-00"
    assert trace_of(trace.header(0xAB)).parent_id == 0xAB


def test_new_span_id_returns_a_different_id_each_time() -> None:
    assert new_span_id() != new_span_id()


HEADER = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("sent", "forwarded"),
    [
        ([], ""),
        ([""], ""),
        (["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (["a=1 , b=2,,\tc=3 "], "a=1,b=2,c=3"),
        (["a=1", "b=2"], "a=1,b=2"),
        (["fw529a3039@dt=FfffffffA;x:y z"], "fw529a3039@dt=FfffffffA;x:y z"),
        ([",".join(f"k{number}=v" for number in range(32))], None),
        (["k=" + "v" * 256], None),
        ([f"a={'v' * 250},b={'v' * 250},c=vvvv"], None),
    ],
)
def test_a_valid_tracestate_is_forwarded(sent: list[str], forwarded: str | None) -> None:
    assert state_of(HEADER, sent) == (sent[0] if forwarded is None else forwarded)


@pytest.mark.parametrize(
    "sent",
    [
        "nonsense",
        "a",
        "a=",
        "=1",
        "A=1",
        "a b=1",
        "a=1=2",
        "a=\xe9",
        "a=1\r\nx: y",
        "a=1\x00",
        "a=1,a=2",
        "a=" + "v" * 257,
        "k" * 257 + "=v",
        ",".join(f"k{number}=v" for number in range(33)),
        f"a={'v' * 250},b={'v' * 250},c=vvvvvvvvv",
    ],
)
def test_an_invalid_tracestate_is_dropped(sent: str) -> None:
    assert state_of(HEADER, [sent]) == ""
    assert state_of(HEADER, ["x=1", sent]) == ""


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{TRACE}-{'0' * 16}-01"])
def test_a_tracestate_without_a_valid_traceparent_is_dropped(header: str) -> None:
    assert state_of(header, ["a=1"]) == ""
