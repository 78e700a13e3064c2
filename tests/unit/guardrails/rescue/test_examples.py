import pytest

from proxy.guardrails.rescue.examples import introduces_example


@pytest.mark.parametrize(
    "words",
    [
        "For example: ",
        "A call, e.g. ",
        "as in ",
        "It looks like this:\n",
        "An example call is ",
        "Here is a simple example\n",
        "Done. Example of another: ",
        "1. Example: ",
        "**Example:**\n",
        "## Usage\n\n",
        "Tool usage:\n",
        "That is it. Syntax:\n",
        "The format would be ",
        "Use the following syntax:\n",
        "You would write\n",
        "Models wrote it so. Users can just send: ",
        "The reply would then be:\n\n",
        "The log says: ",
        "I will not call ",
        "I don't use the ",
        "Say it instead of calling ",
        "It works like this:\n",
        "Example:\n```xml\n",
        "Zum Beispiel so:\n",
        "Par exemple : ",
        "\u4f8b\u5982\uff1a",
        "\uc608: ",
    ],
)
def test_announcements_are_known(words: str) -> None:
    assert introduces_example(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        " \n",
        "Let me look. ",
        "I will check the example file:\n",
        "I check the disk usage:\n",
        "## Disk usage\n",
        "I could not find it. Let me search:\n",
        "I do it like this:\n",
        "Let me call it as follows:\n",
        "It should work now.\n",
        "The page says that it is closed.\n",
        "I use the tool:\n",
        "Not found.\n",
    ],
)
def test_other_words_announce_nothing(words: str) -> None:
    assert not introduces_example(words)
