from proxy.guardrails.model_quirks import Quirks, Template
from proxy.guardrails.offer import TextPolicy
from proxy.profiles.profile import GENERIC, Profile, Sampling
from proxy.profiles.recognition import Recognition
from proxy.profiles.summary import document, summary

QUIRKS = Quirks(
    ("mistral", "hermes"),
    TextPolicy.ACCEPT,
    "mistral",
    "last",
    Template(False, "first", True, ("[INST]",)),
    False,
    True,
    {"python": "run_code"},
)
PROFILE = Profile(
    "own",
    "Our own",
    QUIRKS,
    launch_flags=("--swa-full",),
    sampling=Sampling(temperature=0.15, top_k=0, source="https://example.org/card"),
    sources=("https://example.org/a", "https://example.org/b"),
)
RECOGNISED = Recognition(PROFILE, 'name "own-7b" matches "own*"')


def test_people_read_a_line_for_each_thing_that_matters() -> None:
    assert summary(RECOGNISED, QUIRKS) == {
        "profile": 'own (Our own): name "own-7b" matches "own*"',
        "calls": "mistral, hermes, then every other syntax; one at once",
        "tools": "described in the prompt, as mistral",
        "prose": "accept",
        "thoughts": "replayed: last",
        "template": "system messages first, user and assistant in turns, no role developer",
        "sampling": "temperature 0.15, top_k 0 (https://example.org/card)",
        "launch": "--swa-full",
        "state": "cannot be rolled back",
        "sources": "https://example.org/a https://example.org/b",
    }


def test_what_there_is_nothing_to_say_about_is_left_out() -> None:
    assert summary(Recognition(GENERIC, "nothing known matches"), GENERIC.quirks) == {
        "profile": "generic (Any model): nothing known matches",
        "calls": "every syntax; several at once",
        "tools": "described by the chat template",
        "prose": "auto",
        "thoughts": "replayed: full",
        "template": "system messages anywhere",
    }


def test_a_model_that_is_not_offered_the_tool_for_answers_says_so() -> None:
    quirks = Quirks(offers_respond=False)
    assert summary(RECOGNISED, quirks)["prose"] == "auto, respond is not offered"


def test_programs_read_the_same_as_json() -> None:
    assert document(RECOGNISED, QUIRKS) == {
        "profile": "own",
        "title": "Our own",
        "reason": 'name "own-7b" matches "own*"',
        "syntaxes": ["mistral", "hermes"],
        "parallel_calls": False,
        "tools_in_prompt": "mistral",
        "text_policy": "accept",
        "offers_respond": True,
        "replay": "last",
        "resets_state": True,
        "aliases": {"python": "run_code"},
        "template": {
            "developer": False,
            "system": "first",
            "alternates": True,
            "prefill": True,
            "control_tokens": ["[INST]"],
        },
        "launch_flags": ["--swa-full"],
        "sampling": {"temperature": 0.15, "top_k": 0, "source": "https://example.org/card"},
        "sources": ["https://example.org/a", "https://example.org/b"],
    }
