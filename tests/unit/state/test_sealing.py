import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.sealing import NONCE_BYTES, SealedEntry, Sealing

NEW, OLD = "a-new-secret-of-ours", "the-one-before-that"
NONCE = bytes(range(NONCE_BYTES))
NAMES = st.lists(st.text(max_size=5), max_size=4)


def place(*parts: str, secrets: tuple[str, ...] = (NEW,), namespace: str = "temper") -> SealedEntry:
    return Sealing(secrets, namespace).entries(*parts)[0]


@given(NAMES, st.binary(max_size=40), st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_what_was_sealed_is_opened_where_it_was_sealed_for(
    parts: list[str], body: bytes, nonce: bytes
) -> None:
    assert place(*parts).open(place(*parts).seal(body, nonce)) == body


@given(NAMES, NAMES)
def test_different_names_have_different_places(first: list[str], other: list[str]) -> None:
    assert (place(*first).name == place(*other).name) is (first == other)


def test_a_place_begins_with_the_namespace_and_shows_nothing_of_its_name() -> None:
    key = place("key", "Bearer sk-secret", "order-1", namespace="mine")
    assert key.name.startswith("mine:")
    assert not {"key", "secret", "order"} & {*key.name.replace("-", ":").split(":")}
    assert len(key.name) == len("mine:") + 43
    assert "cipher" not in repr(key)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_what_was_changed_by_a_single_bit_is_not_there(at: int, by: int) -> None:
    sealed = bytearray(place("a").seal(b"an answer", NONCE))
    sealed[at % len(sealed)] ^= by
    assert place("a").open(bytes(sealed)) is None


@pytest.mark.parametrize("length", range(1 + NONCE_BYTES + 16))
def test_what_is_too_short_is_not_there(length: int) -> None:
    assert place("a").open(place("a").seal(b"", NONCE)[:length]) is None


@pytest.mark.parametrize(
    "other",
    [place("b"), place("a", secrets=(OLD,)), place("a", namespace="mine")],
    ids=["another name", "another secret", "another namespace"],
)
def test_what_is_sealed_for_one_place_is_nothing_in_another(other: SealedEntry) -> None:
    assert other.open(place("a").seal(b"an answer", NONCE)) is None


def test_the_first_secret_seals_and_the_one_before_it_still_opens() -> None:
    sealed = place("a", secrets=(OLD,)).seal(b"an answer", NONCE)
    new, old = Sealing((NEW, OLD), "temper").entries("a")
    assert new.name == place("a").name
    assert (new.open(sealed), old.open(sealed)) == (None, b"an answer")


def test_a_body_is_not_readable_and_another_nonce_hides_that_it_is_the_same() -> None:
    sealed = place("a").seal(b"the weather in Paris", NONCE)
    assert b"Paris" not in sealed
    assert place("a").seal(b"the weather in Paris", NONCE[::-1]) != sealed
