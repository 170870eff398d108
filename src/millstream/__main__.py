"""`python -m millstream` is the command `millstream`."""

from millstream.cli.main import main

main()
