"""Tools from several places as those of one run."""

from collections.abc import Sequence
from functools import partial

from proxy.conversation.tools import Tool, ToolCall
from proxy.tool_rounds.executor import Executor, RoundContext
from proxy.tool_rounds.outcomes import Outcome
from proxy.tools.execution import together


class JoinedTools:
    """Has each call executed by whoever offers its tool; raises ValueError for double names."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._specs: list[Tool] = []
        self._executors: dict[str, Executor] = {}
        for executor in executors:
            for spec in executor.specs():
                if spec.name in self._executors:
                    raise ValueError(f"two tools are called {spec.name!r}")
                self._executors[spec.name] = executor
                self._specs.append(spec)

    def specs(self) -> tuple[Tool, ...]:
        """Return the tools there are."""
        return tuple(self._specs)

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Run the calls of one reply and return an outcome for each, in their order."""
        groups: dict[int, list[int]] = {}
        for place, call in enumerate(calls):
            groups.setdefault(id(self._executors[call.name]), []).append(place)
        outcomes: dict[int, Outcome] = {}

        async def execute(places: list[int]) -> None:
            some = [calls[place] for place in places]
            executor = self._executors[some[0].name]
            outcomes.update(zip(places, await executor.execute(some, context), strict=True))

        await together(partial(execute, places) for places in groups.values())
        return tuple(outcomes[place] for place in range(len(calls)))
