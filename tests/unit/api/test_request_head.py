import pytest

from proxy.api.request_head import Headers, RequestRefused, check_head

HOST: Headers = [(b"host", b"127.0.0.1:8000")]


def headers_with_codings(*values: bytes) -> Headers:
    return [*HOST, *((b"transfer-encoding", value) for value in values)]


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b" \tchunked "])
def test_a_chunked_body_is_accepted(value: bytes) -> None:
    check_head(b"/", headers_with_codings(value), "1.1")


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([b"gzip, chunked"], 501),
        ([b"gzip", b"chunked"], 501),
        ([b"identity, chunked"], 501),
        ([b"chunked;a=b, chunked"], 501),
        ([b"chunked, gzip"], 400),
        ([b"gzip"], 400),
        ([b"identity"], 400),
        ([b"chunked, chunked"], 400),
        ([b"chunked", b"chunked"], 400),
        ([b", chunked"], 400),
        ([b"chunked,"], 400),
        ([b""], 400),
        ([b"xchunked"], 400),
    ],
)
def test_any_other_transfer_coding_is_refused(values: list[bytes], status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_head(b"/", headers_with_codings(*values), "1.1")
    assert refused.value.problem.status == status


def test_a_transfer_coding_in_http_1_0_is_refused() -> None:
    with pytest.raises(RequestRefused, match=r"requires HTTP 1\.1"):
        check_head(b"/", headers_with_codings(b"chunked"), "1.0")


@pytest.mark.parametrize("second", [b"127.0.0.1:8000", b"evil.example"])
def test_a_second_host_header_is_refused(second: bytes) -> None:
    with pytest.raises(RequestRefused, match="one Host header"):
        check_head(b"/", [*HOST, (b"host", second)], "1.1")


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (b"/v1/models", b"127.0.0.1:8000"),
        (b"//evil.example/v1/models", b"127.0.0.1:8000"),
        (b"/?to=http://evil.example/", b"127.0.0.1:8000"),
        (b"*", b"127.0.0.1:8000"),
        (b"http://evil.example/v1/models", b"evil.example"),
        (b"HTTP://evil.example:80/", b"evil.example:80"),
        (b"https://[2001:db8::1]:8000?a=b", b"[2001:db8::1]:8000"),
        (b"http://evil.example#x", b"evil.example"),
    ],
)
def test_the_host_of_an_absolute_target_replaces_the_host_header(
    target: bytes, host: bytes
) -> None:
    headers = [(b"accept", b"*/*"), *HOST]
    check_head(target, headers, "1.1")
    assert sorted(headers) == [(b"accept", b"*/*"), (b"host", host)]


def test_an_absolute_target_needs_no_host_header() -> None:
    headers: Headers = []
    check_head(b"http://localhost/", headers, "1.1")
    assert headers == [(b"host", b"localhost")]


@pytest.mark.parametrize("target", [b"http:///v1/models", b"http://127.0.0.1@evil.example/"])
def test_a_target_without_a_valid_host_is_refused(target: bytes) -> None:
    with pytest.raises(RequestRefused, match="no valid host"):
        check_head(target, [*HOST], "1.1")


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_http_versions_other_than_1_0_and_1_1_get_505(version: str) -> None:
    with pytest.raises(RequestRefused, match=r"Send HTTP/1\.1") as refused:
        check_head(b"/", [*HOST], version)
    assert refused.value.problem.status == 505
