import pytest
from msgspec.structs import replace

from proxy.facts import (
    WORDS,
    Asked,
    Coerced,
    Compacted,
    Dropped,
    Fact,
    JudgedAttempt,
    LadderEnded,
    Refused,
    RejectedReply,
    Renamed,
    Repaired,
    ReplyOutcome,
    Rescued,
    ToolRan,
    Unchecked,
    WindowFilled,
    attempts,
    context,
    judged_attempts,
    last_defect,
    outcome,
    repairs,
    report,
    tools,
)

ASKED = Asked("as asked")
RESCUED = Rescued("hermes", "f")


def test_the_name_of_a_fact_is_read_from_words_toml() -> None:
    assert [outcome.name for outcome in (Renamed("F", "f"), Coerced("f", "/a"))] == [
        "renamed",
        "coerced",
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_attempts_counts_the_upstream_requests(count: int) -> None:
    assert attempts([RESCUED, *[ASKED] * count, LadderEnded("prose")]) == count


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], ReplyOutcome.CLEAN),
        ([ASKED], ReplyOutcome.CLEAN),
        ([ASKED, Refused("inside_prose"), Unchecked("f", "no schema")], ReplyOutcome.CLEAN),
        ([ASKED, RESCUED], ReplyOutcome.REPAIRED),
        ([ASKED, Repaired("f")], ReplyOutcome.REPAIRED),
        ([ASKED, Coerced("f", "/a")], ReplyOutcome.REPAIRED),
        ([ASKED, Renamed("F", "f")], ReplyOutcome.REPAIRED),
        ([ASKED, Dropped("second_call")], ReplyOutcome.REPAIRED),
        ([ASKED, RejectedReply("prose"), ASKED, RESCUED], ReplyOutcome.RETRIED),
        ([ASKED, ASKED, RESCUED, LadderEnded("prose")], ReplyOutcome.EXHAUSTED),
        ([ASKED, LadderEnded("prose")], ReplyOutcome.EXHAUSTED),
    ],
)
def test_the_outcome_is_the_strongest_intervention(
    facts: list[Fact], expected: ReplyOutcome
) -> None:
    assert outcome(tuple(facts)) is expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], ""),
        ([ASKED, LadderEnded("prose")], ""),
        ([ASKED, RejectedReply("prose"), ASKED, RejectedReply("prose")], "rejected=prose"),
        ([RESCUED, Coerced("f", "/a"), Coerced("f", "/b")], "rescued=hermes;coerced=2"),
        ([RESCUED, Rescued("fence", "g"), RESCUED], "rescued=hermes,fence"),
        (
            [Repaired("f"), Renamed("F", "f"), Dropped("x"), Unchecked("f", "x"), Refused("x")],
            "repaired=1;renamed=1;dropped=1;unchecked=1;refused=1",
        ),
    ],
)
def test_repairs_are_listed_by_kind(facts: list[Fact], expected: str) -> None:
    assert repairs(tuple(facts)) == expected


def test_informational_facts_are_not_repairs() -> None:
    assert repairs((Fact(), RESCUED)) == "rescued=hermes"


def test_repairs_are_reported_to_the_client_only_if_there_were_any() -> None:
    assert report((ASKED,)) == {"attempts": "1", "outcome": "clean"}
    assert report((ASKED, RESCUED)) == {
        "attempts": "1",
        "outcome": "repaired",
        "repairs": "rescued=hermes",
    }


def test_the_context_header_describes_the_compaction_in_one_line() -> None:
    compacted = Compacted(1, 12, 0, 2, 6_100, 14_020, 8_192, is_new=True)
    line = "n_ctx=8192; sent=6100; client=14020; tier=1; cleared=12; folded=0; epoch=2"
    assert context((Asked("as_asked"), compacted)) == line
    assert context((compacted, WindowFilled(8_192))) == f"{line}; filled=1"
    tight = replace(compacted, answer=96)
    assert context((tight,)) == f"{line}; answer=96"
    assert context((Asked("as_asked"),)) == ""
    assert report((compacted,))["context"] == line
    assert "context" not in report((Asked("as_asked"),))


def test_an_attempt_has_the_defect_of_its_reply() -> None:
    first: list[Fact] = [RejectedReply("stray"), Asked("as_asked"), RESCUED, RejectedReply("prose")]
    assert judged_attempts([*first, RESCUED, Asked("nudged"), LadderEnded("prose")]) == (
        JudgedAttempt("as_asked", "prose"),
        JudgedAttempt("nudged"),
    )
    assert judged_attempts([RESCUED]) == ()


def test_operator_tool_calls_are_counted_by_server() -> None:
    ran = [ToolRan("search", "find", "done", 1), ToolRan("time", "now", "lost", 1)]
    ran += [ToolRan("search", "open", "failed", 2)]
    assert tools(tuple(ran)) == "search=2, time=1"
    assert report((Asked("as_asked"), *ran))["tools"] == "search=2, time=1"
    assert "tools" not in report((Asked("as_asked"),))


def test_a_reply_after_a_tool_round_is_not_a_retry() -> None:
    ran = [ToolRan("search", "find", "done", number) for number in (1, 1, 2)]
    outcomes: list[Fact] = [Asked("as_asked")] * 3
    assert outcome((*outcomes, *ran)) is ReplyOutcome.CLEAN
    assert outcome((*outcomes, Asked("nudged"), *ran)) is ReplyOutcome.RETRIED


def test_last_defect_is_none_without_the_fact_ladder_ended() -> None:
    assert last_defect([ASKED, RejectedReply("prose"), LadderEnded("cut_off")]) == "cut_off"
    assert last_defect([ASKED, RejectedReply("prose")]) is None


def test_words_toml_names_only_existing_facts_and_fields() -> None:
    kinds = {kind.__name__: kind for kind in Fact.__subclasses__()}
    assert WORDS.facts.keys() <= kinds.keys()
    unknown = [
        name
        for name, wording in WORDS.facts.items()
        if wording.listed not in ("", *kinds[name].__struct_fields__)
    ]
    assert unknown == []
