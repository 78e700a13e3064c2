"""The operator's tools for requests: which servers, for which keys, with which limits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec

from msgspec import structs
from pydantic import SecretStr

from proxy.backends.affinity import conversation_key
from proxy.dialects.dialect import Client, Decoded
from proxy.dialects.requested_tools import take_requested_tools
from proxy.errors import InvalidConfiguration
from proxy.inference.kept_reasoning import History, ReasoningStore
from proxy.inference.kept_rounds import AnswerRounds
from proxy.mcp.built_in import BUILT_IN
from proxy.mcp.confirmations import Confirmations
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import ToolOffer, ToolSource
from proxy.mcp.specification import CallLimits, ServerSpec
from proxy.observability.rows import ServerCalls, ToolCalls, ToolServerCard
from proxy.observability.sentences import cut
from proxy.serving.request_preparation import GUARDRAILS_HEADER, Resolved
from proxy.settings import Settings
from proxy.settings.tool_servers import Tools, ToolServer
from proxy.tools.on_demand import FIND_TOOLS, ToolsOnDemand, find_tools_of

_MISSING = "needs the SDK of MCP: pip install 'temper-proxy[mcp]'"


@dataclass(frozen=True, slots=True)
class ToolHosting:
    """The operator's tools that a request can get, and the limits of one request.

    In requests with at least `summarized_from` tools, the prompt contains summaries of the tools,
    and `find_tools`; 0 disables that. `rounds_store` stores the calls of `find_tools` in recent
    answers.
    """

    offer: ToolOffer
    limits: CallLimits = field(default_factory=CallLimits)
    rounds: int = 10
    narrates: bool = False
    confirmations: Confirmations = field(default_factory=Confirmations)
    confirm_seconds: float = 60.0
    summarized_from: int = 0
    rounds_store: ReasoningStore = field(default_factory=ReasoningStore)

    def cards(self, calls: ToolCalls) -> tuple[ToolServerCard, ...]:
        return tuple(self._card(name, calls.of(name)) for name in self.offer.source.names)

    def _card(self, name: str, calls: ServerCalls) -> ToolServerCard:
        source, tools = self.offer.source, self.offer.source.tools_of(name)
        state, problem = source.condition_of(name)
        transport, protocol = source.protocol_of(name)
        return ToolServerCard(
            name=name,
            state=state,
            problem=cut(problem),
            transport=transport,
            protocol=cut(protocol),
            tools=None if tools is None else len(tools),
            asking=None if tools is None else sum(tool.needs_approval for tool in tools),
            **structs.asdict(calls),
        )

    def decode(
        self, decode: Callable[[bytes, Client], Decoded], body: bytes, client: Client
    ) -> Decoded:
        """Decode a body. Requests for the operator's tools are removed first and decoded here."""
        requested = take_requested_tools(body, self.offer.hosted)
        decoded = decode(requested.body, client)
        return structs.replace(decoded, requested_tools=requested.requested_tools)

    def add_tools(self, resolved: Resolved) -> tuple[Resolved, tuple[ServedTool, ...]]:
        """Add the operator's tools to a request; return the request and the added tools."""
        decoded, owner = resolved.decoded, resolved.client.owner
        tools = self.offer.select_tools(decoded.request.tools, decoded.requested_tools, owner)
        if tools:
            offered = resolved.request.offering(tuple(tool.tool for tool in tools))
            resolved = resolved.with_request(offered)
        is_guarded = resolved.client.headers.get(GUARDRAILS_HEADER, "on").strip().lower() == "on"
        if 0 < self.summarized_from <= len(resolved.request.tools) and is_guarded:
            return self._offer_on_demand(resolved, tools)
        return resolved, tools

    def _offer_on_demand(
        self, resolved: Resolved, tools: tuple[ServedTool, ...]
    ) -> tuple[Resolved, tuple[ServedTool, ...]]:
        """Add `find_tools` to a request, and restore its earlier calls, which clients omit."""
        client, request = resolved.client, resolved.request
        find_tools = find_tools_of(request.tools)
        if find_tools is None:
            return resolved, tools
        origin = request.model, conversation_key(request, client.headers)
        rounds = AnswerRounds(self.rounds_store, History(client.owner, origin, request.messages))
        on_demand = ToolsOnDemand(find_tools.name, request.tools, rounds)
        if len(rounds.messages) > len(request.messages):
            request = request.with_messages(rounds.messages)
        request = request.offering((find_tools,))
        resolved = structs.replace(resolved, request=request, on_demand=on_demand)
        return resolved, (*tools, ServedTool(BUILT_IN, FIND_TOOLS, find_tools, ""))


def hosting_of(
    settings: Tools, source: ToolSource, confirmations: Confirmations | None = None
) -> ToolHosting:
    """Translate the settings of tools; `confirmations` are reused when settings are reloaded."""
    targets = {kind: target.partition(".") for kind, target in settings.hosted.items()}
    hosted = {kind: (server, tool) for kind, (server, _, tool) in targets.items()}
    offer = ToolOffer(source, settings.offer, frozenset(settings.owners), hosted)
    limits = CallLimits(settings.parallel, settings.call_seconds, settings.result_chars)
    return ToolHosting(
        offer,
        limits,
        settings.rounds,
        settings.narrate,
        confirmations or Confirmations(),
        settings.confirm_seconds,
    )


def specs_of(settings: Settings) -> tuple[ServerSpec, ...]:
    """Translate the tool servers; raises `InvalidConfiguration` if the MCP SDK is missing."""
    for name in settings.mcp:
        # not `import`, which would take longer than the rest of Temper; an old SDK has no
        # `mcp_types`
        if find_spec("mcp_types") is None:
            raise InvalidConfiguration(f"mcp.{name}", _MISSING)
    return tuple(_spec(name, server) for name, server in settings.mcp.items())


def _spec(name: str, server: ToolServer) -> ServerSpec:
    return ServerSpec(
        name,
        url=server.url,
        headers=_plain(server.headers),
        command=tuple(server.command),
        env=_plain(server.env),
        cwd=server.cwd,
        tools=tuple(server.tools),
        ask=tuple(server.ask),
        prefix=server.prefix,
        digest=server.digest,
    )


def _plain(secrets: dict[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}
