from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.reading import Botched, Reasoned, Responded, Said
from proxy.inference.release import Release


def test_reasoning_is_shown_at_once_whatever_the_policy() -> None:
    assert Release(shows_prose=False).show(Reasoned("hm")) == [ReasoningDelta("hm")]
    muted = Release(shows_prose=True, is_muted=True)
    assert muted.show(Reasoned("hm")) == [ReasoningDelta("hm")]


def test_welcome_prose_is_shown_at_once() -> None:
    release = Release(shows_prose=True)
    assert release.show(Said("Good")) == [TextDelta("Good")]
    assert release.complete("Good day") == [TextDelta(" day")]


def test_other_prose_is_held_until_the_reply_is_judged() -> None:
    release = Release(shows_prose=False)
    assert release.show(Said("Good")) == []
    assert release.complete("Good day") == [TextDelta("Good day")]


def test_a_reply_is_unseen_while_its_prose_is_held() -> None:
    release = Release(shows_prose=False)
    before = release.is_unseen
    release.show(Responded("Good"))
    assert (before, release.is_unseen) == (True, False)
    assert not Release(shows_prose=True).is_unseen


def test_a_message_takes_held_prose_along() -> None:
    release = Release(shows_prose=False)
    assert release.show(Said("One.")) == []
    assert release.show(Responded("\n\nTwo.")) == [TextDelta("One.\n\nTwo.")]
    assert release.complete("One.\n\nTwo.") == []


def test_a_muted_release_shows_no_text() -> None:
    release = Release(shows_prose=True, is_muted=True)
    assert release.show(Said("Good")) == []
    assert release.complete("Good day") == []


def test_from_a_botched_call_on_everything_is_held() -> None:
    release = Release(shows_prose=True)
    assert release.show(Said("One.")) == [TextDelta("One.")]
    assert release.show(Botched("<tool_call>{")) == []
    assert release.show(Said("Two.")) == []
    assert release.show(Responded("Three.")) == []
    whole = "One.<tool_call>{Two.Three."
    assert release.complete(whole) == [TextDelta("<tool_call>{Two.Three.")]
