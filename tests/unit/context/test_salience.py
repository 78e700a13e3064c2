import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.salience import on_one_line, salient_lines
from tests.fakes.arrivals import is_linear

PLAIN = "red\n" * 2_000
LOG = [
    f"INFO 09:12:{second}.104 worker-{second % 8} parsed it in one step" for second in range(10, 60)
]
ROWS = [f'{{"id": "{number:08x}", "total": {number}}}' for number in range(40, 80)]


def first(text: str, count: int) -> list[str]:
    """Return the likeliest lines, each once."""
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
def test_a_line_of_another_kind_comes_first(lines: list[str], line: str) -> None:
    assert first(among(lines, line), 1) == [line.strip()]


def test_of_lines_of_another_kind_those_with_a_word_and_those_with_a_value_go_first() -> None:
    lines = [*LOG[:30], "and so on", "batch 7 was late", *LOG[30:]]
    assert first(among(lines, "error: stuck"), 3) == [
        "error: stuck",
        "batch 7 was late",
        "and so on",
    ]


def test_what_a_program_begins_and_ends_with_comes_after_what_stands_between() -> None:
    text = "\n".join(["src/a_1.py: 12 lines", *LOG[:8], "gave up with PAY-1", "next: 7"])
    assert first(text, 3) == ["gave up with PAY-1", "src/a_1.py: 12 lines", "next: 7"]


def test_a_few_lines_of_another_kind_are_rare_in_a_short_result_too() -> None:
    odd = ["from src/b_2.py line 12", "gave up with PAY-1", "stuck (7)"]
    text = "\n".join(["src/a_1.py: 12 lines", *LOG[:4], *odd, *LOG[4:8], "next: 7"])
    assert set(first(text, 3)) == set(odd)


def test_where_all_lines_are_alike_errors_come_after_both_ends() -> None:
    log = [
        line.replace("INFO", "ERROR") if place % 3 == 0 else line for place, line in enumerate(LOG)
    ]
    text = "\n".join([*log, "fatal"])
    assert first(text, 3) == ["fatal", log[0], log[3]]


def test_where_no_two_lines_are_alike_telling_words_come_first_and_then_both_ends() -> None:
    text = "one,\ntwo;\nthree:\nuser_id = 7\nfive.\nsix!"
    assert first(text, 9) == ["user_id = 7", "one,", "six!"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("user_id = 7", "user_id = 7"),
        ('  "orderId": "x1",', "orderId: x1,"),
        ("orderID: x1", "orderID: x1"),
        ("ID 7", "ID 7"),
        ("Exception in thread", "Exception in thread"),
        ("it was an ERROR", "it was an ERROR"),
        ("see https://a.test", "see https://a.test"),
        ("filepath: /a", "filepath: /a"),
        ("İd: 7, id: 8", "İd: 7, id: 8"),
    ],
)
def test_a_telling_word_is_found_in_any_case(line: str, kept: str) -> None:
    assert first(f"a,\n{line}\nz.", 1) == [kept]


@pytest.mark.parametrize("line", ["I did it", "a wide side", "video", "idle Idea", "HIDDEN"])
def test_a_word_that_only_contains_id_tells_nothing(line: str) -> None:
    assert first(f"a,\n{line}\nz.", 1) == ["a,"]


def test_of_an_overlong_line_the_part_around_the_word_is_kept() -> None:
    text = f'{{"a":"{"x" * 900}","path":"/srv/a.csv","b":"{"y" * 900}"}}'
    (line,) = first(text, 1)
    assert "path:/srv/a.csv" in line
    assert len(line) <= 100


def test_a_long_result_is_searched_at_both_ends() -> None:
    assert first(f"a\nid 1\n{PLAIN}", 1) == ["id 1"]
    assert first(f"{PLAIN}id 2\nz", 1) == ["id 2"]
    assert "id 3" not in first(f"{PLAIN}id 3\n{PLAIN}", 99)


def test_records_and_lines_within_a_string_are_told_apart() -> None:
    records = [{"id": f"{number:08x}", "total": number} for number in range(40)]
    records.insert(20, {"id": "late", "state": "failed", "code": "E-77"})
    for text in (json.dumps(records, separators=(",", ":")), json.dumps(records)):
        assert "{id:late,state:failed,code:E-77}," in [
            line.replace(" ", "") for line in first(text, 3)
        ]
    printed = json.dumps({"stdout": among(LOG, "gave up with PAY-60123")})
    assert "gave up with PAY-60123" in first(printed, 2)


@given(st.text(st.sampled_from('aid: "\n\t{}é7/\\,\ud800'), max_size=400))
def test_there_is_always_a_line_and_never_a_break_in_it(text: str) -> None:
    found = list(salient_lines(text))
    assert found
    assert all("\n" not in line and len(line) <= 100 for _, line in found)
    assert found == list(salient_lines(text))


def test_on_one_line_there_are_no_breaks_and_no_quotes() -> None:
    assert on_one_line('{"a":\n  "b"}') == "{a: b}"


def test_the_work_is_linear_in_the_result() -> None:
    def work(text: str) -> list[tuple[int, str]]:
        return list(salient_lines(text))

    assert is_linear(work, lambda size: "an id, a path\n" * size, 20_000)
