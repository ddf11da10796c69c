"""`python -m latentuq` is the `latentuq` command."""

from latentuq.cli import main

main()
