"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable.

`__main__` is the command. The rooms, from the edge inwards: cli; doctor, agents and scaling; api;
mcp; serving; settings; processes and state; observability; tools, profiles and hardware;
backends; inference; guardrails, context and dialects; conversation.
`engine` puts a turn's questions to a backend, `errors` is everything that can go wrong, `facts`
what happened to a request. `files` reads what an operator names, within `bounds`, of which owners
have `shares`; `systems` has what differs between systems.
docs/architecture.md is the map.

Programs import from `temper`. Its names can be had from here as well, as they could before there
was that package.
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temper import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Return what `temper` calls so (PEP 562)."""
        import temper

        if name not in temper.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(temper, name)
        return found


DISTRIBUTION = (
    "temper-proxy"  # `temper.__main__` asks for it: there are others of this package's name
)


def version() -> str:
    try:
        return version_of(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"


def __dir__() -> list[str]:
    import temper

    return sorted({*globals(), *temper.__all__})
