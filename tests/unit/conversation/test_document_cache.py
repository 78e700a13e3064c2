import pytest

from proxy.conversation.document_cache import DocumentCache, LruCache

KB = 1024


class CachedValue:
    """A cached value; no two values are equal."""


def compute(_: bytes) -> CachedValue:
    return CachedValue()


def test_the_same_document_gives_the_cached_value() -> None:
    cache = DocumentCache(compute)
    assert cache(b"a") is cache(b"a")
    assert cache(b"a") is not cache(b"b")


def test_a_huge_document_is_not_cached() -> None:
    cache = DocumentCache(compute, largest=10)
    assert cache(b"x" * 10) is cache(b"x" * 10)
    assert cache(b"x" * 11) is not cache(b"x" * 11)


def test_the_least_recently_used_document_is_evicted_if_the_cache_exceeds_its_bytes() -> None:
    cache = DocumentCache(compute, most=25 * KB)
    first, second = cache(b"a" * 10 * KB), cache(b"b" * 10 * KB)
    assert cache(b"a" * 10 * KB) is first
    cache(b"c" * 10 * KB)
    assert cache(b"a" * 10 * KB) is first
    assert cache(b"b" * 10 * KB) is not second


def test_a_small_document_counts_as_one_kilobyte() -> None:
    cache = DocumentCache(compute, most=10 * KB)
    kept = [cache(b"%d" % number) for number in range(100)]
    assert cache(b"99") is kept[99]
    assert cache(b"89") is not kept[89]


def test_the_size_of_an_entry_includes_the_bytes_reported_by_the_callback_named_further() -> None:
    cache = DocumentCache(compute, most=10 * KB, further=lambda _: 8 * KB)
    first = cache(b"a")
    assert cache(b"a") is first
    cache(b"b")
    assert cache(b"a") is not first


def test_an_exception_is_not_cached() -> None:
    requests: list[bytes] = []

    def refused(document: bytes) -> CachedValue:
        requests.append(document)
        raise KeyError(document)

    cache = DocumentCache(refused)
    for _ in range(2):
        with pytest.raises(KeyError):
            cache(b"a")
    assert requests == [b"a", b"a"]


def test_the_value_none_is_cached() -> None:
    requests: list[bytes] = []
    cache = DocumentCache[None](requests.append)
    assert cache(b"a") is cache(b"a") is None
    assert requests == [b"a"]


def test_a_second_value_for_a_document_is_neither_stored_nor_counted() -> None:
    kept = LruCache[CachedValue](most=2 * KB + 2, largest=1)
    first, second = CachedValue(), CachedValue()
    assert kept.find(b"a") is None
    kept.keep(b"a", first)
    kept.keep(b"a", second)
    kept.keep(b"b", second)
    kept.keep(b"cc", second)
    assert kept.find(b"a") is first
    assert kept.find(b"b") is second
    assert kept.find(b"cc") is None
