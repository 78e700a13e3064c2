"""Translates the settings into the tools that requests get, who may use them, and their limits."""

from collections.abc import Callable, Iterator
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
from proxy.serving.context_fitting import FittingMode
from proxy.serving.request_preparation import GUARDRAILS_HEADER, Resolved, fitting_mode
from proxy.settings import Settings
from proxy.settings.tool_servers import Tools, ToolServer
from proxy.tools.built_in import FIND_TOOLS, RECALL, BuiltInTools, define

# Engines reject a request with both tools and one of these fields, or they enforce the field from
# the first token of a reply, so that the model cannot call a tool.
_WITHOUT_TOOLS = frozenset((
    "grammar", "json_schema", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "logprobs",
))  # fmt: skip

_MISSING = "needs the SDK of MCP: pip install 'temper-proxy[mcp]'"


@dataclass(frozen=True, slots=True)
class ToolHosting:
    """The operator's tools that a request can get, and the limits of one request.

    In requests with at least `summarized_from` tools, the prompt contains only summaries of the
    tools, and the tool `find_tools`; 0 disables this. With `recalls`, the model can search the
    messages that compaction removed. `rounds_store` stores the calls of Temper's own tools in
    recent answers.
    """

    offer: ToolOffer
    limits: CallLimits = field(default_factory=CallLimits)
    rounds: int = 10
    narrates: bool = False
    confirmations: Confirmations = field(default_factory=Confirmations)
    confirm_seconds: float = 60.0
    summarized_from: int = 0
    recalls: bool = False
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
        """Remove the references to the operator's tools from a body, and decode the rest of it.

        The result has these references as `requested_tools`.
        """
        requested = take_requested_tools(body, self.offer.hosted)
        decoded = decode(requested.body, client)
        return structs.replace(decoded, requested_tools=requested.requested_tools)

    def add_tools(self, resolved: Resolved) -> tuple[Resolved, tuple[ServedTool, ...]]:
        """Add the operator's tools to a request; return the request and the added tools."""
        decoded, owner = resolved.decoded, resolved.client.owner
        tools = self.offer.select_tools(decoded.request.tools, decoded.requested_tools, owner)
        # the operator's tools come after the client's, so that the prompt begins with equal bytes
        if tools:
            offered = resolved.request.offering(tuple(tool.tool for tool in tools))
            resolved = resolved.with_request(offered)
        is_guarded = resolved.client.headers.get(GUARDRAILS_HEADER, "on").strip().lower() == "on"
        return self._offer_built_in(resolved, tools) if is_guarded else (resolved, tools)

    def _offer_built_in(
        self, resolved: Resolved, tools: tuple[ServedTool, ...]
    ) -> tuple[Resolved, tuple[ServedTool, ...]]:
        """Add Temper's own tools, and their earlier calls, which clients do not send."""
        client, request = resolved.client, resolved.request
        defined = {name: define(name, request.tools) for name in self._built_in_names(resolved)}
        built_in = {name: tool for name, tool in defined.items() if tool is not None}
        if not built_in:
            return resolved, tools
        origin = request.model, conversation_key(request, client.headers)
        rounds = AnswerRounds(self.rounds_store, History(client.owner, origin, request.messages))
        other_tools = request.tools
        # The client's history lacks the calls of Temper's own tools and their results. If `rounds`
        # has more messages, it has inserted them (decision 0036).
        if len(rounds.messages) > len(request.messages):
            request = request.with_messages(rounds.messages)
        request = request.offering((*built_in.values(),))
        resolved = structs.replace(
            resolved, request=request, built_in=BuiltInTools(built_in, other_tools, rounds)
        )
        served = (ServedTool(BUILT_IN, name, tool, "") for name, tool in built_in.items())
        return resolved, (*tools, *served)

    def _built_in_names(self, resolved: Resolved) -> Iterator[str]:
        decoded, request = resolved.decoded, resolved.request
        if 0 < self.summarized_from <= len(request.tools):
            yield FIND_TOOLS
        if not self.recalls:
            return
        mode = fitting_mode(resolved.client, decoded) or FittingMode.AUTO
        has_format = request.answer_schema is not None or not _WITHOUT_TOOLS.isdisjoint(
            request.fields
        )
        may_have_tools = bool(request.tools) or not (has_format or decoded.load_status)
        # Offered from the first request on, although no message was removed yet. If the tool first
        # appeared after a cut, the engine could not reuse its prompt cache (decision 0039).
        if mode is FittingMode.AUTO and may_have_tools:
            yield RECALL


def hosting_of(
    settings: Tools, source: ToolSource, confirmations: Confirmations | None = None
) -> ToolHosting:
    """Translate the settings of tools; a reload passes the `confirmations` of the old settings."""
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
        # The SDK is not imported here, because that would take longer than importing all of Temper.
        # An old SDK has no module `mcp_types`.
        if find_spec("mcp_types") is None:
            raise InvalidConfiguration(f"mcp.{name}", _MISSING)
    return tuple(_spec(name, server) for name, server in settings.mcp.items())


def _spec(name: str, server: ToolServer) -> ServerSpec:
    return ServerSpec(
        name,
        url=server.url,
        headers=_reveal(server.headers),
        command=tuple(server.command),
        env=_reveal(server.env),
        cwd=server.cwd,
        tools=tuple(server.tools),
        ask=tuple(server.ask),
        prefix=server.prefix,
        digest=server.digest,
    )


def _reveal(secrets: dict[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}
