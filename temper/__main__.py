"""The command `temper`, which says so where the package `proxy` is another distribution's."""

import sys

_TAKEN = (
    "temper: the installed package `proxy` belongs to another distribution (proxy.py has one of"
    " that name). Install Temper in a separate environment, for example with `pipx install"
    " temper-proxy`."
)


def main() -> None:
    """Run the command."""
    import proxy

    if getattr(proxy, "DISTRIBUTION", "") != "temper-proxy":
        sys.exit(_TAKEN)
    from proxy.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
