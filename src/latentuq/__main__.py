"""`python -m latentuq` is the `latentuq` command."""

from latentuq.cli import main

if __name__ == "__main__":
    main()
