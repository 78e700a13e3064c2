import pytest

from proxy.observability.trace_context import TraceContext, new_span_id, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_clients_trace_goes_on_under_an_id_of_our_own() -> None:
    trace = trace_of(f"00-{TRACE}-{PARENT}-01")
    assert trace.trace_id == int(TRACE, 16)
    assert trace.parent_id == int(PARENT, 16)
    assert trace.span_id not in (0, trace.parent_id)
    assert trace.is_sampled


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("02", False), ("03", True)])
def test_whoever_began_the_trace_decides_whether_it_is_kept(flags: str, is_sampled: bool) -> None:
    assert trace_of(f"00-{TRACE}-{PARENT}-{flags}").is_sampled is is_sampled


def test_a_later_version_may_say_more() -> None:
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
def test_what_cannot_be_read_begins_a_trace(header: str) -> None:
    trace = trace_of(header)
    assert trace.trace_id not in (0, int(TRACE, 16))
    assert trace.parent_id is None
    assert trace.is_sampled


def test_what_travels_on_names_the_span_that_asks() -> None:
    trace = TraceContext(int(TRACE, 16), 5, is_sampled=False)
    assert trace.header(0xAB) == f"00-{TRACE}-00000000000000ab-00"
    assert trace_of(trace.header(0xAB)).parent_id == 0xAB


def test_ids_of_spans_are_made_fresh() -> None:
    assert new_span_id() != new_span_id()
