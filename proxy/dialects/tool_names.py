"""Names of tools, wherever a request has one."""

from collections.abc import Collection

from proxy.errors import InvalidRequest


def check_name(name: str, param: str) -> None:
    """Refuse what is no name of a function; `param` is where it stands."""
    if not name.strip():
        raise InvalidRequest("Expected the name of the function, got an empty string.", param)
    if not name.isprintable():
        raise InvalidRequest("A name must not contain control or invisible characters.", param)


def check_new(name: str, known: Collection[str], param: str) -> None:
    if name in known:
        raise InvalidRequest(f"Two tools are named {name!r}. Rename one.", param)


def check_offered(name: str, offered: Collection[str], param: str) -> None:
    """Refuse the choice of a tool that is not offered."""
    if name not in offered:
        known = ", ".join(offered) or "none"
        raise InvalidRequest(f"There is no tool {name!r} among the offered ones: {known}.", param)
