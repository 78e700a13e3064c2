"""Raw HTTP requests as attackers write them: a seeded generator of heads, bodies and pipelines.

Every input is one to three requests on one connection, and most end with a request that closes the
connection. Each request deviates from RFC 9112 in only a few places, so that most of them pass the
first check. The deviations are known from request smuggling: two programs that interpret one of
them differently disagree on where the request ends.
"""

from collections.abc import Sequence
from random import Random

HOST = b"temper.test"
LAST = b"GET /last HTTP/1.1\r\nhost: " + HOST + b"\r\nconnection: close\r\n\r\n"

_METHODS = (b"POST", b"POST", b"POST", b"GET", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH")
_ODD_METHODS = (b"TRACE", b"CONNECT", b"QUERY", b"PRI", b"post", b"G(T", b"", b"\x00", b"SOURCE")
_TARGETS = (b"/%d", b"/%d?a=b", b"/unread/%d", b"/%d%%2e%%2e/a", b"//%d", b"/%d;a")
_ODD_TARGETS = (
    *(b"http://temper.test/%d", b"http://other.test/%d", b"HTTP://temper.test:80/%d", b"/%d#a"),
    *(b"*", b"temper.test:80", b"http://a@temper.test/%d", b"http:///%d", b"", b"%d", b"/%d a"),
    *(b"/%d\t", b"/%d\x00", b"/%d\xff", b"/%d\x7f", b"http://temper.test", b"?%d", b"/%d\\a"),
    *(b"https://temper.test/%d?a", b"//temper.test/%d", b"/%d HTTP/1.1\nx: y"),
)
_VERSIONS = (b"HTTP/1.1",) * 12 + (b"HTTP/1.0",) * 3
_ODD_VERSIONS = (
    *(b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 ", b"HTTP/01.1", b"http/1.1", b"HTTP/1"),
    *(b"", b"HTTP/1.10", b"HTTP/1.1\t", b"HTTP/1.1\x00", b"HTTP /1.1", b"ICE/1.0", b"RTSP/1.0"),
)
_LINE_ENDS = (
    b"\n",
    b"\r",
    b"\r\r\n",
    b"\n\r",
    b"\r\n ",
    b"\x00\r\n",
    b"\r\n\t",
    b"\x0b\r\n",
    b" \r\n",
)
_SEPARATORS: tuple[bytes, ...] = (
    b":",
    b":  ",
    b":\t",
    b" : ",
    b"\t: ",
    b"\x0b: ",
    b":\x0b",
    b":\x0c",
    b":\x00",
    b" ",
)
_SEPARATORS += (b":\r\n ", b":\n ", b"\x00:", b": \xa0", b":\x85", b"::", b"\xa0: ", b"")
_LENGTHS = (
    *(b"+%d", b"-%d", b"0%d", b"000000000000000000000%d", b"0x%x", b"%d ", b"%d\t", b"%d,%d"),
    *(b"%d, %d", b"%d,", b",%d", b"%d;a", b"%d.0", b"%de0", b"%d_0", b'"%d"', b"%d\x0b", b"\x0c%d"),
    *(b"", b" ", b"1844674407370955161%d", b"9223372036854775808", b"42949672%d", b"%d 5", b"NaN"),
    *(b"%d, 0", b"0, %d", b"\xef\xbc\x95", b"%d\x00", b"-0", b"%d\r\n 5"),
)
_CODINGS = (
    *(b"Chunked", b"CHUNKED", b"chunked,", b",chunked", b"chunked, chunked", b'"chunked"'),
    *(b"\x0bchunked", b"chunked\x0b", b"\x0cchunked", b"gzip, chunked", b"chunked, gzip"),
    *(b"chunked;a=b", b"chunked ; q=1", b"xchunked", b"chunkedx", b"identity", b"", b"chunked\t"),
    *(b"identity, chunked", b"chunked, identity", b"chunk", b"chun\xc4\xb1ked", b"chunked\x00"),
    *(
        b"\tchunked",
        b"gzip",
        b"chunked\r\n , identity",
        b"\r\n chunked",
        b"chunked\xa0",
        b"c hunked",
    ),
    *(b"\xe2\x84\xaahunked", b"trailers", b"chunked, , chunked", b"'chunked'", b"chunked\n"),
)
_CODING_NAMES = (
    *(b"Transfer-Encoding", b"TRANSFER-ENCODING", b"transfer_encoding", b"transfer-encoding "),
    *(
        b" transfer-encoding",
        b"transfer-encoding\x00",
        b"x: y\ntransfer-encoding",
        b"transferencoding",
    ),
    *(b"x: y\rtransfer-encoding", b"\x0btransfer-encoding", b"tran\x00sfer-encoding", b"te"),
)
_SIZES = (
    *(
        b"0%x",
        b"000000000000000000%x",
        b"%x;a=b",
        b'%x;a="\r\n"',
        b"%x ",
        b"%x\t;a",
        b"+%x",
        b"-%x",
    ),
    *(
        b"0x%x",
        b"%x\x00",
        b"%x;\n",
        b"1000000000000000%x",
        b"fffffffffffffff%x",
        b"%x,",
        b" %x",
        b"",
    ),
    *(b"%x;a\rb", b"%x_", b"%x.0", b"%xh", b"%x\x0b", b"%x;\x00", b"%x;a=b;c", b"\t%x", b"%x\xa0"),
)
_CHUNK_ENDS = (b"\n", b"\r", b"", b"x", b"\r\r\n", b"\n\n", b" \r\n", b"\x00\r\n", b"xx\r\n")
_TRAILERS = (
    *(b"x-t: 1\r\n", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"host: a\r\n"),
    *(b"x\r\n", b" x: y\r\n", b"x: y\n", b"x-oracle: forged\r\n", b"GET /trailer HTTP/1.1\r\n"),
    *(
        b": x\r\n",
        b"x: \x00\r\n",
        b"x: y\r\n z\r\n",
        b"\nGET /trailer HTTP/1.1\r\nhost: temper.test\r\n",
    ),
)
_EXTRAS = (
    *(b"expect: 100-continue", b"Expect: 100-CONTINUE", b"expect: 200-ok", b"upgrade: websocket"),
    *(b"connection: upgrade\r\nupgrade: h2c", b"connection: close", b"connection: keep-alive"),
    *(
        b"connection: content-length",
        b"connection: transfer-encoding",
        b"connection: host, x-oracle",
    ),
    *(b"connection: x-oracle", b"te: trailers", b"trailer: content-length", b"x-oracle: forged"),
    *(b"host: temper.test", b"Host: other.test", b"host : temper.test", b"keep-alive: timeout=5"),
    *(b"proxy-connection: keep-alive", b"x: \x00", b"x: a\r\n b", b"x"),
    *(
        b": x",
        b"x:",
        b"x: \xff",
        b"x\x7f: y",
        b"x y: z",
        b"x: a\rb",
        b"x: a\nGET / HTTP/1.1",
        b"\t",
    ),
    *(b"x: a\r\n\x00: b", b"http2-settings: AAMAAABk", b"content-length: 0", b"content_length: 3"),
    *(b"x-http-method-override: GET", b"x_oracle: forged", b"x-forwarded-host: other.test", b" "),
    *(
        b"cookie: a=b\r\ncookie: c=d",
        b"x: " + b"y" * 999,
        b"\xef\xbb\xbfx: y",
        b"(x): y",
        b'"x": y',
    ),
)
_STRAY = (b"\r\n", b"\n", b"\x00", b" ", b"G", b"0\r\n\r\n", b"\r\n\r\n", b"\xff", b"\t", b"\r")
_BYTES = b"\x00\t\n\x0b\x0c\r :,;0159afx\x7f\x80\xa0\xff"


def attack(seed: int, number: int) -> bytes:
    """Return the input with this number; the same seed and number always give the same input."""
    chance = Random(f"{seed}:{number}")
    requests = [_request(chance, digit) for digit in range(chance.choice((1, 1, 1, 2, 2, 3)))]
    if chance.random() < 0.05:
        requests.insert(chance.randrange(len(requests) + 1), chance.choice(_STRAY))
    if chance.random() < 0.8:
        requests.append(LAST)
    sent = b"".join(requests)
    return _broken(chance, sent) if chance.random() < 0.15 else sent


def _broken(chance: Random, sent: bytes) -> bytes:
    """Replace, insert, drop or repeat a few bytes at random places."""
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(sent) + 1)
        end = min(at + chance.choice((0, 1, 1, 2, 5)), len(sent))
        byte = bytes([chance.choice(_BYTES)])
        sent = sent[:at] + chance.choice((byte, b"", sent[at:end] * 2, byte * 3)) + sent[end:]
    return sent


def _usual(chance: Random, usual: Sequence[bytes], odd: Sequence[bytes], share: float) -> bytes:
    return chance.choice(odd if chance.random() < share else usual)


def _request(chance: Random, number: int) -> bytes:
    method = _usual(chance, _METHODS, _ODD_METHODS, 0.03)
    target = _usual(chance, _TARGETS, _ODD_TARGETS, 0.12)
    version = _usual(chance, _VERSIONS, _ODD_VERSIONS, 0.03)
    line = _numbered(target, number).join((method + b" ", b" " + version))
    if chance.random() < 0.02:
        line = line.replace(b" ", chance.choice((b"  ", b"\t", b"\x0b", b"")), 1)
    framing, body = _framed(chance, number)
    headers = [b"host: " + HOST] if chance.random() < 0.98 else []
    headers += framing
    headers += chance.choices(_EXTRAS, k=chance.choice((0, 0, 0, 1, 1, 2)))
    chance.shuffle(headers)
    head = [line, *(_respelled(chance, header) for header in headers)]
    ends = [_usual(chance, (b"\r\n",), _LINE_ENDS, 0.015) for _ in head]
    lines = b"".join(part + end for part, end in zip(head, ends, strict=True))
    return lines + _usual(chance, (b"\r\n",), (b"\n", b"\r", b" \r\n", b"\r\n\r\n"), 0.01) + body


def _numbered(pattern: bytes, number: int) -> bytes:
    return pattern.replace(b"%d", b"%d" % number).replace(b"%%", b"%")


def _respelled(chance: Random, header: bytes) -> bytes:
    name, separator, value = header.partition(b": ")
    if separator and chance.random() < 0.04:
        return name + chance.choice(_SEPARATORS) + value
    if chance.random() < 0.1:
        return name.title() + separator + value
    return header


def _content(chance: Random, number: int) -> bytes:
    """Return a body: some words, or bytes that would be a request if taken out of the body."""
    embedded = b"GET /smuggled/%d HTTP/1.1\r\nhost: %b\r\nx: " % (number, HOST)
    whole = embedded[:-5] + b"\r\n\r\n"
    kinds = (b"", b"hello", b"x" * chance.randrange(40), whole, embedded, b"0\r\n\r\n" + whole)
    return chance.choice((*kinds, b"5\r\nhello\r\n0\r\n\r\n" + whole, b"\r\n\r\n" + whole))


def _framed(chance: Random, number: int) -> tuple[list[bytes], bytes]:
    """Return the headers that frame a body, and the body."""
    content = _content(chance, number)
    kind = chance.random()
    if kind < 0.1:
        return [], content if chance.random() < 0.2 else b""
    if kind < 0.45:
        return _lengths(chance, len(content)), content
    chunked = _chunked(chance, content)
    if kind < 0.9:
        headers = [_coding(chance)]
        if chance.random() < 0.1:
            headers.append(_coding(chance))
        if chance.random() < 0.35:
            headers += _lengths(chance, chance.choice((0, 3, len(chunked), len(content))))
        return headers, chunked
    return [*_lengths(chance, len(content)), _coding(chance)], content


def _lengths(chance: Random, size: int) -> list[bytes]:
    name = b"content-length: "
    if (kind := chance.random()) < 0.5:
        return [name + b"%d" % size]
    if kind < 0.6:
        return [name + b"%d" % max(0, size + chance.choice((-9, -2, -1, 1, 2, 9)))]
    if kind < 0.75:
        other = chance.choice((size, size, 0, size + 1, max(0, size - 1)))
        return [name + b"%d" % size, name + b"%d" % other]
    pattern = chance.choice(_LENGTHS)
    fields = pattern.count(b"%d") + pattern.count(b"%x")
    return [name + (pattern % ((size,) * fields))]


def _coding(chance: Random) -> bytes:
    name = _usual(chance, (b"transfer-encoding",), _CODING_NAMES, 0.1)
    return name + b": " + _usual(chance, (b"chunked",), _CODINGS, 0.35)


def _chunked(chance: Random, content: bytes) -> bytes:
    middle = chance.randrange(len(content) + 1)
    parts = [part for part in (content[:middle], content[middle:]) if part]
    odd = chance.random() < 0.35
    chunks = [_chunk(chance, part, odd=odd and chance.random() < 0.5) for part in [*parts, b""]]
    trailer = chance.choice(_TRAILERS) if chance.random() < 0.12 else b""
    end = _usual(chance, (b"\r\n",), _CHUNK_ENDS, 0.03)
    return b"".join(chunks) + trailer + end


def _chunk(chance: Random, content: bytes, *, odd: bool) -> bytes:
    """Return a chunk; the last one is empty, and `_chunked` adds its trailers and line end."""
    size = chance.choice(_SIZES) if odd and chance.random() < 0.7 else b"%x"
    head = size.replace(b"%x", b"%x" % len(content))
    end = chance.choice(_CHUNK_ENDS) if odd and chance.random() < 0.4 else b"\r\n"
    if not content:
        return head + end
    return head + b"\r\n" + content + end
