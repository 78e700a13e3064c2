from proxy.context.compaction import NoCompaction
from proxy.conversation.messages import user_message


def test_no_compaction_passes_every_message_on() -> None:
    messages = (user_message("one"), user_message("two"))
    fitted = NoCompaction().fit(messages, (), 100)
    assert fitted.messages is messages
    assert fitted.facts == ()
