from proxy.doctor.finding import Examined, doubtful, fine, skipped, wrong
from proxy.doctor.report import document, is_well, line, summary

WELL = Examined("one", fine("well"), "m")
DOUBTFUL = Examined("two", doubtful("hm", "do this"), "m")
ILL = Examined("three", wrong("ill", "do that"), "m")
UNKNOWN = Examined("four", skipped("cannot tell"), "m")


def test_a_line_holds_the_finding_and_the_remedy_below() -> None:
    assert line(WELL, [DOUBTFUL]).plain.split() == ["ok", "one", "well"]
    first, second = line(DOUBTFUL, [WELL]).plain.splitlines()
    assert first.split() == ["warn", "two", "hm"]
    assert second.strip() == "-> do this"


def test_the_first_finding_of_a_model_has_its_name_above() -> None:
    of_the_machine = Examined("open files", fine("well"))
    assert line(WELL, [of_the_machine]).plain.split() == ["m", "ok", "one", "well"]
    assert line(of_the_machine).plain.split() == ["ok", "open", "files", "well"]


def test_only_a_failure_is_bad() -> None:
    assert is_well([WELL, DOUBTFUL, UNKNOWN])
    assert not is_well([WELL, ILL])


def test_the_summary_counts() -> None:
    assert summary([WELL, UNKNOWN]) == "All is well: 1 checks."
    assert summary([WELL, DOUBTFUL, ILL]) == "1 checks are fine, 1 warn, 1 fail."


def test_programs_get_every_finding() -> None:
    told = document([WELL, ILL])
    assert told["ok"] is False
    names = ("model", "check", "status", "found", "remedy", "copy")
    assert told["checks"] == [
        dict(zip(names, values, strict=True))
        for values in (
            ("m", "one", "ok", "well", "", ""),
            ("m", "three", "fail", "ill", "do that", ""),
        )
    ]


def test_lines_to_be_copied_stand_as_they_are() -> None:
    copied = Examined("four", fine("set this:", "a = 1\nb = 2"), "m")
    assert line(copied, [WELL]).plain.endswith("set this:\n\na = 1\nb = 2\n")
