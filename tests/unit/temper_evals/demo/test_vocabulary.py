import random

import pytest
from gguf import TokenType

from temper_evals.demo.vocabulary import basic_vocabulary, cut, trigger_token, write_scripts


def test_a_text_is_cut_into_chunks_that_are_not_yet_used() -> None:
    used_chunks = {"a", "b", "c", "abcab"}
    assert cut("abcabcabc", 5, used_chunks) == ["abcabc", "abc"]
    assert used_chunks == {"a", "b", "c", "abcab", "abcabc", "abc"}


def test_a_remainder_that_is_already_used_is_appended_to_the_previous_chunk() -> None:
    assert cut("hello!", 5, {"!"}) == ["hello!"]
    assert cut("aaaaabbbbb!", 5, {"!", "bbbbb!"}) == ["aaaaabbbbb!"]


def test_given_chunks_are_joined_only_if_one_is_already_used() -> None:
    assert cut(["one", " two", " three"], 1, set()) == ["one", " two", " three"]
    assert cut(["one", " two", " three"], 1, {" two"}) == ["one", " two three"]


def test_cutting_a_text_that_is_already_used_as_a_chunk_raises_value_error() -> None:
    with pytest.raises(ValueError, match="too short"):
        cut("x", 5, {"x"})


def test_an_empty_text_is_cut_into_no_chunks() -> None:
    assert cut("", 5, set()) == []


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_similar_texts_are_unique_and_complete(seed: int) -> None:
    chance = random.Random(seed)
    texts = ["".join(chance.choices("ab", k=chance.randint(20, 60))) for _ in range(20)]
    texts += [text + "b" for text in texts]
    used_chunks = {"a", "b"}
    chunks = [cut(text, 5, used_chunks) for text in texts]
    assert ["".join(parts) for parts in chunks] == texts
    everything = [chunk for parts in chunks for chunk in parts]
    assert len(set(everything)) == len(everything)
    assert used_chunks == {"a", "b", *everything}


def test_the_basic_vocabulary_has_a_token_for_every_byte() -> None:
    vocabulary = basic_vocabulary()
    assert len(set(vocabulary.tokens)) == len(vocabulary.tokens)
    assert vocabulary.tokens[ord("A")] == "A"
    assert vocabulary.tokens[ord(" ")] == "\u0120"
    assert vocabulary.tokens[ord("\n")] == "\u010a"


def test_trigger_token_adds_a_user_defined_token_unless_it_exists() -> None:
    vocabulary = basic_vocabulary()
    token = trigger_token(vocabulary, "two words")
    assert vocabulary.tokens[token] == "two words"
    assert vocabulary.kinds[token] is TokenType.USER_DEFINED
    marker = trigger_token(vocabulary, "<tool_response>")
    assert vocabulary.tokens.count("<tool_response>") == 1
    assert vocabulary.tokens[marker] == "<tool_response>"


@pytest.mark.parametrize("trigger", ["", "a", "th", "<|im_end|>"])
def test_a_trigger_that_is_empty_or_an_existing_token_is_refused(trigger: str) -> None:
    with pytest.raises(ValueError, match="cannot be a trigger"):
        trigger_token(basic_vocabulary(), trigger)


def test_only_equal_scripts_share_their_tokens() -> None:
    vocabulary = basic_vocabulary()
    scripts = write_scripts(vocabulary, {"one": "Hi.", "two": "Hi.", "three": "Hi, you."})
    assert scripts["one"] == scripts["two"]
    assert not set(scripts["one"].chunks) & set(scripts["three"].chunks)


def test_only_scripts_that_end_with_a_zero_byte_repeat() -> None:
    scripts = {"ever": "for ever and\0", "ever and": ["so", " on\0"], "once": "once", "empty": ""}
    vocabulary = basic_vocabulary()
    rewritten = write_scripts(vocabulary, scripts)
    repeating = {trigger for trigger, script in rewritten.items() if script.repeats}
    assert repeating == {"ever", "ever and"}
    assert not any("\0" in token for token in vocabulary.tokens)
    assert rewritten["empty"].chunks == ()
