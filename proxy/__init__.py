"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable.

`__main__` is the command. In the following list, each package imports only packages that come
later: cli; doctor, agents and scaling; api; mcp; serving; settings; processes and state;
observability; tools, profiles and hardware; backends; inference; guardrails, context and dialects;
conversation.

`errors` defines all errors, and `facts` defines the events of a request. `files` reads the
operator's files within `bounds`; `shares` divides a bound among owners. `systems` contains the code
that differs between operating systems. docs/architecture.md is the overview.

Programs import from `temper`. Its names are also available here, for programs that were written
before the package `temper` existed.
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temper import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Return the public name of `temper` (PEP 562)."""
        import temper

        if name not in temper.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(temper, name)
        return value


# used by `temper.__main__` to detect another distribution that installs a package `proxy`
DISTRIBUTION = "temper-proxy"


def version() -> str:
    try:
        return version_of(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"


def __dir__() -> list[str]:
    import temper

    return sorted({*globals(), *temper.__all__})
