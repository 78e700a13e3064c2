"""The command `temper` or `python -m proxy`; installs signal handlers before other imports."""

from proxy.cli.signals import exit_when_signalled


def main() -> None:
    """Run the command."""
    exit_when_signalled()
    from proxy.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
