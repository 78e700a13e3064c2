import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.sealing import NONCE_BYTES, SealedEntry, Sealing

NEW, OLD = "a-new-secret-of-ours", "the-one-before-that"
NONCE = bytes(range(NONCE_BYTES))
NAMES = st.lists(st.text(max_size=5), max_size=4)


def entry_for(
    *parts: str, secrets: tuple[str, ...] = (NEW,), namespace: str = "temper"
) -> SealedEntry:
    return Sealing(secrets, namespace).entries(*parts)[0]


@given(NAMES, st.binary(max_size=40), st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_open_decrypts_a_body_that_was_sealed_by_an_entry_of_the_same_parts(
    parts: list[str], body: bytes, nonce: bytes
) -> None:
    assert entry_for(*parts).open(entry_for(*parts).seal(body, nonce)) == body


@given(NAMES, NAMES)
def test_entries_have_the_same_name_only_for_the_same_parts(
    first: list[str], other: list[str]
) -> None:
    assert (entry_for(*first).name == entry_for(*other).name) is (first == other)


def test_the_name_of_an_entry_begins_with_the_namespace_and_does_not_contain_its_parts() -> None:
    key = entry_for("key", "Bearer sk-secret", "order-1", namespace="mine")
    assert key.name.startswith("mine:")
    assert not {"key", "secret", "order"} & {*key.name.replace("-", ":").split(":")}
    assert len(key.name) == len("mine:") + 43
    assert "cipher" not in repr(key)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_a_sealed_body_with_one_changed_byte_cannot_be_opened(at: int, by: int) -> None:
    sealed = bytearray(entry_for("a").seal(b"an answer", NONCE))
    sealed[at % len(sealed)] ^= by
    assert entry_for("a").open(bytes(sealed)) is None


@pytest.mark.parametrize("length", range(1 + NONCE_BYTES + 16))
def test_a_truncated_sealed_body_cannot_be_opened(length: int) -> None:
    assert entry_for("a").open(entry_for("a").seal(b"", NONCE)[:length]) is None


@pytest.mark.parametrize(
    "other",
    [entry_for("b"), entry_for("a", secrets=(OLD,)), entry_for("a", namespace="mine")],
    ids=["another name", "another secret", "another namespace"],
)
def test_an_entry_of_another_name_secret_or_namespace_cannot_open_a_body(
    other: SealedEntry,
) -> None:
    assert other.open(entry_for("a").seal(b"an answer", NONCE)) is None


def test_each_secret_has_an_entry_that_opens_only_bodies_sealed_with_this_secret() -> None:
    sealed = entry_for("a", secrets=(OLD,)).seal(b"an answer", NONCE)
    new, old = Sealing((NEW, OLD), "temper").entries("a")
    assert new.name == entry_for("a").name
    assert (new.open(sealed), old.open(sealed)) == (None, b"an answer")


def test_a_sealed_body_is_encrypted_and_depends_on_the_nonce() -> None:
    sealed = entry_for("a").seal(b"the weather in Paris", NONCE)
    assert b"Paris" not in sealed
    assert entry_for("a").seal(b"the weather in Paris", NONCE[::-1]) != sealed
