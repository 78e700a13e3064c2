"""The command `temper`, which says so where the package `proxy` is another distribution's."""

import sys

_TAKEN = (
    "temper: the package `proxy` here is that of another distribution (proxy.py has one of that"
    " name): install Temper in an environment of its own, for example by `pipx install"
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
