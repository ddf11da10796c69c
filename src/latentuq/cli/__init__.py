"""The `latentuq` command."""

import sys
from typing import Any, NoReturn

from latentuq.errors import UserError


def main() -> NoReturn:
    """Runs the command line; everything a person can get wrong is one sentence and exit code 2."""
    import typer

    from latentuq.cli.app import app

    # The class of all complaints about flags and arguments; typer does not export it by name.
    usage_error: type[Any] = typer.BadParameter.__base__ or typer.BadParameter
    try:
        sys.exit(app(prog_name="latentuq", standalone_mode=False))
    except UserError as error:
        _fail(str(error), 2)
    except usage_error as error:
        context = getattr(error, "ctx", None)
        if not sys.argv[1:] and context is not None:
            print(context.get_help())
            sys.exit(0)
        _fail(f"{error.format_message()} See latentuq --help.", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("Interrupted.", 130)
    except BrokenPipeError:
        sys.exit(141)
    except MemoryError:
        _fail("There is not enough memory for this; use fewer or smaller images.", 2)


def _fail(message: str, code: int) -> NoReturn:
    print(f"latentuq: {message}", file=sys.stderr)
    sys.exit(code)
