"""`python -m rookery.cli`: the command without its script."""

from . import main

main()
