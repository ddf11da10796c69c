"""The `latentuq` command."""

import io
import sys
import time
import warnings
from typing import Any, NoReturn, cast

from latentuq.cli.interrupts import end_interrupted, ending_soon, is_interrupted
from latentuq.core.errors import UserError
from latentuq.core.reading import reason
from latentuq.core.text import printable

STARTED = time.perf_counter()
"""When the command was called."""


def main() -> NoReturn:
    """Runs the command line; everything a person can get wrong is one sentence and exit code 2."""
    warnings.formatwarning = lambda message, *_, **__: f"latentuq: {printable(str(message))}\n"
    try:
        with ending_soon():
            code = _run()
    finally:
        # Whatever became of the interrupt on its way through other libraries.
        if is_interrupted():
            end_interrupted()
    sys.exit(code)


def _run() -> int:
    """Runs the command line and returns its exit code."""
    import typer

    # The class of all complaints about flags and arguments; typer does not export it by name.
    usage_error = cast(type[Exception], typer.BadParameter.__base__)
    # Names of files that are not UTF-8 are printed too.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from latentuq.cli.commands import app

        return app(prog_name="latentuq", standalone_mode=False) or 0
    except UserError as error:
        return _fail(str(error))
    except usage_error as error:
        message = str(cast(Any, error).format_message())
        # A bare `latentuq` or `latentuq data` was answered with its help text already.
        if not message:
            return 0
        return _fail(f"{message.rstrip('.')}; see latentuq --help.")
    except BrokenPipeError:
        return 141
    except OSError as error:
        return _fail(f"{error.filename or 'A file'} cannot be read or written: {reason(error)}.")
    except UnicodeEncodeError as error:
        return _fail(f"The name {error.object[:200]} is not UTF-8, which files of text need.")
    except MemoryError:
        return _fail("There is not enough memory for this; use fewer or smaller images.")


def _fail(message: str) -> int:
    print(f"latentuq: {printable(message)}", file=sys.stderr, flush=True)
    return 2
