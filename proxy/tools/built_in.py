"""Temper's own tools of one request; their results come from the request itself.

    find_tools   returns complete definitions where the prompt has only summaries (`on_demand`)
    recall       quotes messages that are no longer in the prompt (`recall`)

Every request of a conversation lists the same tools of Temper, after the client's tools. So the
start of the prompt stays the same when compaction removes messages for the first time.
"""

from collections.abc import Sequence

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.offer import TextPolicy
from proxy.inference.kept_rounds import AnswerRounds
from proxy.inference.plan import Policy, RequestPlan
from proxy.tools.on_demand import find_definitions, summarize
from proxy.tools.recall import Archive, recall

FIND_TOOLS, RECALL = "find_tools", "recall"
_PREFIX = "temper_"  # added to the name of a tool if another tool of the request has this name
_TEXTS = {
    FIND_TOOLS: (
        "Get the full descriptions and argument schemas of tools. The other tools are only "
        "summarized: call this before you call one whose arguments you do not know.",
        "What the tool has to do, or its name",
    ),
    RECALL: (
        "Search the messages and tool results that were shortened or removed from this "
        "conversation, where notes such as [cut, 900 chars] or [Note: earlier steps of this "
        "conversation, shortened] are now. Call this before you say that you do not know something "
        "from earlier, and before you read or run something again.",
        "Words of the passage, such as names, paths and error messages",
    ),
}


class BuiltInTools(msgspec.Struct, frozen=True):
    """Temper's tools in one request.

    `tools` has Temper's tools by their usual names, such as "recall"; the name in the prompt may
    have a prefix. `others` are the complete definitions of the client's and the tool servers'
    tools. `rounds` has the earlier calls of Temper's tools in this conversation, and their
    results.
    """

    tools: dict[str, Tool]
    others: tuple[Tool, ...]
    rounds: AnswerRounds

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools in the prompt."""
        return frozenset(tool.name for tool in self.tools.values())

    @property
    def is_alone(self) -> bool:
        """Whether the request has no other tools, so that any text is an answer."""
        return not self.others

    def adapt(self, policy: Policy) -> Policy:
        """Return the policy of the request; without other tools, any text is an answer."""
        if not self.is_alone:
            return policy
        # only Temper's tools can be called, so no rule can demand a call (decision 0039)
        accepts = TextPolicy.ACCEPT
        return msgspec.structs.replace(policy, text_policy=accepts, close_out=CloseOut.OFF)

    def summarize(self, plan: RequestPlan) -> RequestPlan:
        """Return the plan with summarized tools in the prompt, if the model has `find_tools`."""
        return summarize(plan, self.others) if FIND_TOOLS in self.tools else plan

    def answer(self, own_name: str, query: JsonValue, archive: Archive, limit: int) -> str:
        """Return the result of a call, at most `limit` characters."""
        words = query if isinstance(query, str) else ""
        if own_name == RECALL:
            return recall(words, archive, limit)
        return find_definitions(words, self.others)[:limit]


def define(own_name: str, others: Sequence[Tool]) -> Tool | None:
    """Return a tool of Temper under an unused name; None if its name and prefixed name are used."""
    used = {tool.name for tool in others}
    name = next((name for name in (own_name, _PREFIX + own_name) if name not in used), None)
    if name is None:
        return None
    description, words = _TEXTS[own_name]
    query: JsonObject = {"type": "string", "description": words}
    parameters: JsonObject = {
        "type": "object",
        "properties": {"query": query},
        "required": ["query"],
    }
    function: JsonObject = {"name": name, "description": description, "parameters": parameters}
    return Tool(name, parameters, json.dump({"type": "function", "function": function}))
