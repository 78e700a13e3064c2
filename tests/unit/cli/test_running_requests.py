import pytest
from msgspec.structs import replace

from proxy import facts
from proxy.cli.running_requests import describe_phase, describe_requests
from proxy.observability.board import Board
from proxy.observability.record import (
    RUNNING,
    WAITING,
    AttemptRecord,
    RequestRecord,
    RequestStage,
    Tokens,
    ToolRecord,
)
from proxy.observability.rows import Row, row_of
from tests.fakes.hostile_text import HOSTILE, has_control

RECORD = RequestRecord(id="r", begun_at=0.0, seconds=12.0, status=499, model="qwen", client="anna")
RETRIED = (AttemptRecord("as_asked", 0.0, 1.0, "prose"), AttemptRecord("nudged", 1.0, 1.0))
FAILED = (AttemptRecord("as_asked", 0.0, 1.0, None, "timed_out"), RETRIED[1])
TOOL = ToolRecord("files", "read", "c", 1, 0.0, 0.0, RUNNING)


class FakeRequest:
    """The part of a `LiveRequest` that the board reads."""

    def __init__(self, record: RequestRecord, stage: RequestStage) -> None:
        self.record, self.stage = record, stage

    def snapshot(self) -> tuple[RequestRecord, RequestStage, float | None]:
        return self.record, self.stage, 0.4

    def cancel(self) -> bool:
        return False


def row(stage: RequestStage, record: RequestRecord = RECORD, progress: float | None = None) -> Row:
    return row_of(record, "abc-1", phase=stage.value, progress=progress)


@pytest.mark.parametrize(
    ("running_row", "text"),
    [
        (row(RequestStage.QUEUED), "waiting for a slot"),
        (row(RequestStage.LOADING), "waiting for the model to load"),
        (row(RequestStage.READING), "reading the prompt"),
        (row(RequestStage.READING, progress=0.0), "reading the prompt"),
        (row(RequestStage.READING, progress=0.4), "reading the prompt 40 %"),
        (
            row(RequestStage.READING, replace(RECORD, tokens=Tokens(output=1))),
            "generating, 1 token",  # generated, but not yet sent: the reply is not judged yet
        ),
        (row(RequestStage.STREAMING), "generating"),
        (
            row(RequestStage.STREAMING, replace(RECORD, tokens=Tokens(output=1234))),
            "generating, 1,234 tokens",
        ),
        (
            row(
                RequestStage.ASKED_AGAIN,
                replace(
                    RECORD,
                    attempts=RETRIED,
                    tokens=Tokens(output=3),
                    facts=(facts.RejectedReply("prose"),),
                ),
            ),
            "retrying: prose instead of a call, 3 tokens",
        ),
        (row(RequestStage.ASKED_AGAIN, replace(RECORD, attempts=FAILED)), "retrying"),
        (row(RequestStage.RUNNING_TOOL, replace(RECORD, tools=(TOOL,))), "running files.read"),
        (row(RequestStage.RUNNING_TOOL), "running a tool"),
        (
            row(
                RequestStage.WAITING_FOR_PERSON,
                replace(RECORD, tools=(replace(TOOL, status=WAITING),)),
            ),
            "waiting for approval: files.read",
        ),
        (replace(row(RequestStage.QUEUED), phase="later"), "later"),
    ],
)
def test_the_phase_of_a_request_is_described(running_row: Row, text: str) -> None:
    assert describe_phase(running_row) == text


def test_the_oldest_requests_have_a_line_and_the_others_are_counted() -> None:
    board = Board()
    for seconds in (200.0, 12.0, 5.0, 0.5):
        board.open(FakeRequest(replace(RECORD, seconds=seconds), RequestStage.READING))
    board.close(board.open(FakeRequest(RECORD, RequestStage.READING)), RECORD)
    assert [*describe_requests(board, 4)] == [
        "3 min 20 s  reading the prompt 40 %  qwen  by anna",
        " 12 s  reading the prompt 40 %  qwen  by anna",
        "  5 s  reading the prompt 40 %  qwen  by anna",
    ]  # the newest request has run for less than a second
    assert [*describe_requests(board, 2)][1] == "       and 3 more"
    assert [*describe_requests(Board(), 4)] == []


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_in_names_of_models_and_clients_are_escaped(text: str) -> None:
    board = Board()
    board.open(FakeRequest(replace(RECORD, model=text, client=text), RequestStage.QUEUED))
    (line,) = describe_requests(board, 4)
    assert not has_control(line)
