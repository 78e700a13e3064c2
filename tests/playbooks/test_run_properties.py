"""Invariants of runs, for random replies, tool results, cancellations and failures."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.messages import Message
from proxy.conversation.replies import ReplyFinished, ReplyStarted, ToolCalled
from proxy.conversation.tools import NamedTool, ToolCall, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.tools.executor import Status
from proxy.tools.run import Ask, RunConfig, RunState, Stop
from tests.fakes.rounds import CONFIG, RunBook, done, reply

MOST_ROUNDS = 4

names = st.sampled_from(["add", "show", "open_file"])
replies = st.tuples(st.sampled_from(["", "Well."]), st.lists(names, max_size=3), st.booleans())
endings = st.sampled_from(["", "", "", "cancel", "fail", "cut_off", "defect"])
configs = st.builds(
    RunConfig,
    st.just(CONFIG.owned),
    workflow=st.sampled_from([Workflow(), Workflow(terminal_tools=("show",))]),
    rounds=st.integers(0, MOST_ROUNDS),
    failed_rounds=st.integers(1, 3),
    built_in=st.sampled_from([frozenset[str](), frozenset(("show",))]),
)
choices = st.sampled_from(
    [ToolUse.AUTO, ToolUse.REQUIRED, ToolUse.NONE, NamedTool("add"), NamedTool("open_file")]
)


class Player:
    """Plays a run with drawn events, and checks it after each step."""

    def __init__(self, book: RunBook, data: st.DataObject) -> None:
        self.book = book
        self.data = data
        self.prompts: list[Ask] = []
        self.call_ids: set[str] = set()  # the ids of complete calls

    def play(self) -> None:
        run = self.book.run
        while (step := run.next_step()) is not None:
            ending = self.data.draw(endings)
            if ending == "cancel":
                run.cancel()
            elif ending == "fail":
                run.fail("prose")
            elif isinstance(step, Ask):
                self.answer(step, ending)
            else:
                self.execute(step.calls)
            check_history(run.added)

    def answer(self, step: Ask, ending: str) -> None:
        before = self.prompts[-1].request.messages if self.prompts else ()
        assert step.request.messages[: len(before)] == before
        self.prompts.append(step)
        text, tools, is_split = self.data.draw(replies)
        calls = [
            ToolCall(f"call_{len(self.prompts)}_{index}", name, "{}")
            for index, name in enumerate(tools)
        ]
        events = reply(text, *calls, reason="length" if ending == "cut_off" else None)
        if ending not in ("cut_off", "defect"):
            self.call_ids |= {call.id for call in calls}
        middle = len(events) // 2 if is_split else 0
        self.book.receive(events[:middle])
        self.book.receive(events[middle:], defect="prose" if ending == "defect" else None)

    def execute(self, calls: Sequence[ToolCall]) -> None:
        assert {call.id for call in calls} <= self.call_ids
        assert {call.name for call in calls} <= CONFIG.owned
        outcomes = [
            done(call, "Result", self.data.draw(st.sampled_from([*Status]))) for call in calls
        ]
        self.book.seen += self.book.run.finish_round(outcomes)


def check_history(messages: Sequence[Message]) -> None:
    """Check that each reply is followed by one result for each of its calls, in order."""
    open_ids: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id == open_ids.pop(0)
            assert message.failed is not None
        else:
            assert open_ids == []
            open_ids = [call.id for call in message.calls]
    assert open_ids == []


@given(configs, choices, st.data())
def test_a_random_run_has_a_valid_history_and_gives_the_client_one_reply(
    config: RunConfig, choice: ToolUse | NamedTool, data: st.DataObject
) -> None:
    player = Player(RunBook.of(config, choice=choice), data)
    player.play()
    run, seen = player.book.run, player.book.seen
    assert run.state is RunState.DONE
    assert run.stop is not None
    assert len(player.prompts) <= config.rounds + 1
    assert [step.is_last for step in player.prompts[:-1]].count(True) == 0
    assert sum(isinstance(event, ReplyStarted) for event in seen) <= 1
    finished = [isinstance(event, ReplyFinished) for event in seen]
    is_silent = run.stop is Stop.CANCELLED or (run.stop is Stop.EXHAUSTED and not any(finished))
    assert finished.count(True) == (0 if is_silent else 1)
    assert is_silent or finished[-1]
    shown = [event.call.name for event in seen if isinstance(event, ToolCalled)]
    assert CONFIG.owned.isdisjoint(shown)
    assert len(run.rounds) <= config.rounds
    check_demand(config, choice, player)


def check_demand(config: RunConfig, choice: ToolUse | NamedTool, player: Player) -> None:
    """Check that a call of one of Temper's own tools does not count as a required call."""
    if choice is not ToolUse.REQUIRED:
        return
    for number, step in enumerate(player.prompts):
        rounds = player.book.run.rounds[:number]
        names = {outcome.call.name for each in rounds for outcome in each.outcomes}
        is_unsatisfied = names <= config.built_in
        assert (step.request.tool_choice is ToolUse.REQUIRED) is is_unsatisfied
