"""All tasks by number; those of a tool set are adjacent, so its prompt stays in the cache."""

from benchmarks.real.bed import Task, ToolSet
from benchmarks.real.shop import SHOP
from benchmarks.real.travel import TRAVEL
from benchmarks.real.workspace import WORKSPACE

TOOL_SETS = (SHOP, WORKSPACE, TRAVEL)
TASKS: dict[int, tuple[ToolSet, Task]] = dict(
    enumerate(((tools, task) for tools in TOOL_SETS for task in tools.tasks), 1)
)
