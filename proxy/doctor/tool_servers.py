"""Checks of the tool servers in the settings: they start, and their tools are no burden."""

from proxy.context.rough_tokens import count_rough_tokens
from proxy.doctor.finding import Finding, doubtful, fine, wrong
from proxy.doctor.target import Target
from proxy.serving.tool_inventory import InspectedServer, inspected_servers

_MANY_TOOLS = 20
_LARGE_SHARE = 0.2  # of the window


async def tool_servers(target: Target) -> Finding:
    """Start each server, and weigh what would be offered of it against the window."""
    return judge(await inspected_servers(target.settings), target.known.window)


def judge(servers: tuple[InspectedServer, ...], window: int | None) -> Finding:
    """Return what is wrong with tool servers; `window` in tokens, None where nobody knows."""
    for one in servers:
        if one.state != "ready":
            said = one.problem or f"is {one.state}"
            return wrong(f"{one.spec.name} {said}", f"temper tools; see mcp.{one.spec.name}")
    odd = [f"{one.spec.name} {warning}" for one in servers for warning in one.warnings]
    if odd:
        return doubtful(odd[0], "temper tools shows what its server defines now")
    offered = [tool for one in servers for tool in one.offered]
    names = [tool.tool.name for tool in offered]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return doubtful(f"two servers have a tool {twice[0]!r}", "set a prefix for one of them")
    tokens = sum(count_rough_tokens(tool.tool.source.decode()) for tool in offered)
    told = f"{len(offered)} tools of {len(servers)} servers are offered, about {tokens} tokens"
    remedy = "name fewer in mcp.NAME.tools: models choose worse among many"
    is_large = window is not None and tokens > window * _LARGE_SHARE
    if is_large or len(offered) > _MANY_TOOLS:
        return doubtful(told, remedy)
    return fine(told)
