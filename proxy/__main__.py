"""`python -m proxy`: the same as the command `temper`."""

from proxy.cli import main

main()
