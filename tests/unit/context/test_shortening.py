import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.rough_tokens import count_rough_tokens
from proxy.context.shortening import (
    LONGEST_STUB,
    STUB,
    TextCache,
    gist,
    head_and_tail,
    on_one_line,
    salient_lines,
    stub,
    with_content,
)
from proxy.context.units import units_of
from proxy.conversation.messages import Message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import history, result, written
from tests.unit.context.conversations import step

PLAIN_LISTING = "red\n" * 2_000
LOG = [
    f"INFO 09:12:{second}.104 worker-{second % 8} parsed it in one step" for second in range(10, 60)
]
ROWS = [f'{{"id": "{number:08x}", "total": {number}}}' for number in range(40, 80)]


def first(text: str, count: int) -> list[str]:
    """Return the `count` most salient lines, without duplicates."""
    return list(islice(dict.fromkeys(line for _, line in salient_lines(text)), count))


def among(lines: list[str], line: str) -> str:
    return "\n".join([*lines[:20], line, *lines[20:]])


@pytest.mark.parametrize(
    "line",
    [
        "gave up with PAY-60123",
        "charged 4f3a-b2c3d4 a second time",
        "    from src/values/found_1234.py line 12",
        "order id: 4f3a-b2c3d4",
        "Error: it has no lock",
    ],
)
@pytest.mark.parametrize("lines", [LOG, ROWS], ids=["log", "rows"])
def test_a_line_that_differs_from_all_others_is_the_most_salient(
    lines: list[str], line: str
) -> None:
    assert first(among(lines, line), 1) == [line.strip()]


def test_unusual_lines_with_a_keyword_or_value_come_before_other_unusual_lines() -> None:
    lines = [*LOG[:30], "and so on", "batch 7 was late", *LOG[30:]]
    assert first(among(lines, "error: stuck"), 3) == [
        "error: stuck",
        "batch 7 was late",
        "and so on",
    ]


def test_an_unusual_line_in_the_middle_comes_before_the_first_and_last_line() -> None:
    text = "\n".join(["src/a_1.py: 12 lines", *LOG[:8], "gave up with PAY-1", "next: 7"])
    assert first(text, 3) == ["gave up with PAY-1", "src/a_1.py: 12 lines", "next: 7"]


def test_three_unusual_lines_in_a_short_result_come_first() -> None:
    odd = ["from src/b_2.py line 12", "gave up with PAY-1", "stuck (7)"]
    text = "\n".join(["src/a_1.py: 12 lines", *LOG[:4], *odd, *LOG[4:8], "next: 7"])
    assert set(first(text, 3)) == set(odd)


def test_the_first_and_last_line_of_a_log_come_before_its_frequent_error_lines() -> None:
    log = [
        line.replace("INFO", "ERROR") if index % 3 == 0 else line for index, line in enumerate(LOG)
    ]
    text = "\n".join([*log, "fatal"])
    assert first(text, 3) == ["fatal", log[0], log[3]]


def test_if_all_lines_differ_a_keyword_comes_before_the_first_and_last_line() -> None:
    text = "one,\ntwo;\nthree:\nuser_id = 7\nfive.\nsix!"
    assert first(text, 9) == ["user_id = 7", "one,", "six!"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        # a keyword in any case
        ("user_id = 7", "user_id = 7"),
        ('  "orderId": "x1",', "orderId: x1,"),
        ("orderID: x1", "orderID: x1"),
        ("ID 7", "ID 7"),
        ("Exception in thread", "Exception in thread"),
        ("it was an ERROR", "it was an ERROR"),
        ("see https://a.test", "see https://a.test"),
        ("filepath: /a", "filepath: /a"),
        ("İd: 7, id: 8", "İd: 7, id: 8"),
        # a word that merely contains id is no keyword
        ("I did it", "a,"),
        ("a wide side", "a,"),
        ("video", "a,"),
        ("idle Idea", "a,"),
        ("HIDDEN", "a,"),
    ],
)
def test_keywords_of_salient_lines_match_in_any_case(line: str, kept: str) -> None:
    assert first(f"a,\n{line}\nz.", 1) == [kept]


def test_an_overlong_line_keeps_the_part_around_the_keyword() -> None:
    text = f'{{"a":"{"x" * 900}","path":"/srv/a.csv","b":"{"y" * 900}"}}'
    (line,) = first(text, 1)
    assert "path:/srv/a.csv" in line
    assert len(line) <= 100


def test_only_the_beginning_and_end_of_a_long_result_are_searched_for_salient_lines() -> None:
    assert first(f"a\nid 1\n{PLAIN_LISTING}", 1) == ["id 1"]
    assert first(f"{PLAIN_LISTING}id 2\nz", 1) == ["id 2"]
    assert "id 3" not in first(f"{PLAIN_LISTING}id 3\n{PLAIN_LISTING}", 99)


def test_an_unusual_record_or_line_is_found_in_json_on_one_line() -> None:
    records = [{"id": f"{number:08x}", "total": number} for number in range(40)]
    records.insert(20, {"id": "late", "state": "failed", "code": "E-77"})
    for text in (json.dumps(records, separators=(",", ":")), json.dumps(records)):
        assert "{id:late,state:failed,code:E-77}," in [
            line.replace(" ", "") for line in first(text, 3)
        ]
    printed = json.dumps({"stdout": among(LOG, "gave up with PAY-60123")})
    assert "gave up with PAY-60123" in first(printed, 2)


@given(st.text(st.sampled_from('aid: "\n\t{}é7/\\,\ud800'), max_size=400))
def test_salient_lines_are_not_empty_and_have_no_line_breaks(text: str) -> None:
    lines = list(salient_lines(text))
    assert lines
    assert all("\n" not in line and len(line) <= 100 for _, line in lines)
    assert lines == list(salient_lines(text))


def test_the_function_on_one_line_removes_line_breaks_and_quotation_marks() -> None:
    assert on_one_line('{"a":\n  "b"}') == "{a: b}"


def test_finding_salient_lines_takes_linear_time() -> None:
    def work(text: str) -> list[tuple[int, str]]:
        return list(salient_lines(text))

    assert is_linear(work, lambda size: "an id, a path\n" * size, 20_000)


CALL = ToolCall("c", "look", '{"path":"a.py"}')
PLAIN = "red\n" * 100
ERRORS = "\n".join(f"error {number} in part {number}" for number in range(90))


def test_a_stub_shows_the_call_and_the_size_and_both_ends_of_its_result() -> None:
    text = "first line\n" + "more\n" * 50 + "last line\n"
    assert stub(CALL, text) == "[cut, 271 chars] look path:a.py: first line | last line"


def test_a_stub_keeps_salient_parts_in_their_order() -> None:
    text = f"a\n{PLAIN}gave up with PAY-60123\n{PLAIN}z"
    assert stub(CALL, text).endswith(": a | gave up with PAY-60123 | z")


def test_a_long_result_has_a_longer_stub() -> None:
    lines = "\n".join(f"error {number}: {'x' * (number % 60)}" for number in range(900))
    sizes = [count_rough_tokens(stub(CALL, lines[:length])) for length in (8_000, 24_000)]
    assert sizes == sorted(sizes)
    assert count_rough_tokens(stub(CALL, "error 1, " * 90_000)) <= LONGEST_STUB


@given(st.text(st.sampled_from('aid: "\n\t{}é7/'), max_size=900))
def test_a_stub_is_one_line_of_limited_length(text: str) -> None:
    made = stub(ToolCall("c", "a" * (len(text) % 60), text), text)
    assert count_rough_tokens(made) <= STUB
    assert "\n" not in made


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ""), ("one\ntwo", "one | two"), ("one\nerror two\nthree", "one | error two | three")],
)
def test_the_lines_of_a_gist_are_in_the_order_of_the_text(text: str, expected: str) -> None:
    assert gist(text, 20) == expected


def test_a_gist_has_the_most_informative_lines() -> None:
    assert gist("one\nerror two\nthree", 6) == "error two"
    assert count_rough_tokens(gist(ERRORS, 40)) <= 40
    assert gist(ERRORS, 3) == ""


def test_an_overlong_line_of_a_gist_keeps_the_part_with_the_value() -> None:
    before = "it was tried again and again until at last the service said no and gave up with "
    assert "PAY-60123" in gist(f"{before}PAY-60123", 16)
    assert gist(before, 10).startswith("it was tried")
    assert gist(f"order 60123 {before}", 10).startswith("order 60123")
    assert gist("charged 4f3a-b2c3d4 a second time", 13) == "4f3a-b2c3d4…"
    assert gist("charged 4f3a-b2c3d4 a second time", 14) == "charged 4f3a-b2c3d4…"


def test_the_function_head_and_tail_keeps_the_beginning_and_end_and_notes_the_size() -> None:
    text = "".join(f"<{number}>" for number in range(2_000))
    made = head_and_tail(text, 400, 0.5)
    assert made.startswith("<0><1><2>")
    assert made.endswith("<1998><1999>")
    assert f"the middle of {len(text)} characters is left out" in made
    assert count_rough_tokens(made) <= 400


def test_the_function_head_and_tail_keeps_at_most_the_given_share_of_characters() -> None:
    text = "word " * 2_000
    assert len(head_and_tail(text, 5_000, 0.1)) <= 1_000


@pytest.mark.parametrize(("limit", "share"), [(5, 0.5), (400, 0.001)])
def test_the_function_head_and_tail_returns_only_the_note_if_there_is_no_space(
    limit: int, share: float
) -> None:
    made = head_and_tail("word " * 2_000, limit, share)
    assert made == "[… the middle of 10000 characters is left out …]"


def test_the_function_with_content_changes_only_the_text_of_a_result() -> None:
    (message,) = history(result("7", "long", name="look"))
    shortened = with_content(message, "short")
    assert written([shortened]) == [result("7", "short", name="look")]


def test_a_shortened_result_keeps_its_failure_flag() -> None:
    assert with_content(tool_result("c", "long", failed=True), "short").failed is True


def test_a_cached_text_is_created_again_only_after_its_eviction() -> None:
    cache = TextCache(capacity=2)
    texts: list[str] = []

    def get(key: int, text: str) -> Message:
        def write() -> Message:
            texts.append(text)
            return user_message(text)

        return cache.get(key, write)

    first = get(1, "one")
    assert get(1, "another") is first
    get(2, "two")
    get(1, "one")
    get(3, "three")  # evicts the least recently used text
    assert get(1, "one") is first
    assert get(2, "two").text == "two"
    assert texts == ["one", "two", "three", "two"]


def test_the_stub_of_a_result_is_created_only_once() -> None:
    cache = TextCache()
    stubs = [
        cache.stub(result)
        for number in (1, 2, 1)
        for unit in units_of((user_message("Find it."), *step(number, 90)))
        for result in unit.results
    ]
    assert stubs[0] is stubs[2] is not stubs[1]
    assert "part_1" in stubs[0].text
    assert stubs[0].tool_call_id == "call_1"
