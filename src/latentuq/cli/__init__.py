"""The `latentuq` command."""

import io
import os
import signal
import sys
import time
import warnings
from typing import Any, NoReturn, cast

from latentuq.cli.interrupts import insisting
from latentuq.core.errors import UserError
from latentuq.core.reading import reason
from latentuq.core.text import printable

STARTED = time.perf_counter()
"""When the command was called."""


def main() -> NoReturn:
    """Runs the command line; everything a person can get wrong is one sentence and exit code 2."""
    import typer

    # The class of all complaints about flags and arguments; typer does not export it by name.
    usage_error = cast(type[Exception], typer.BadParameter.__base__)
    # Names of files that are not UTF-8 are printed too.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: f"latentuq: {printable(str(message))}\n"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with insisting():
            # An interrupt may come while this imports JAX.
            from latentuq.cli.commands import app

            code = app(prog_name="latentuq", standalone_mode=False)
    except UserError as error:
        _fail(str(error), 2)
    except usage_error as error:
        message = str(cast(Any, error).format_message())
        # A bare `latentuq` or `latentuq data` was answered with its help text already.
        if not message:
            sys.exit(0)
        _fail(f"{message.rstrip('.')}; see latentuq --help.", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'A file'} cannot be read or written: {reason(error)}.", 2)
    except UnicodeEncodeError as error:
        _fail(f"The name {error.object[:200]} is not UTF-8, which files of text need.", 2)
    except MemoryError:
        _fail("There is not enough memory for this; use fewer or smaller images.", 2)
    if code == 130:
        _say("Interrupted.")
        # Threads of XLA may still be at work: an orderly exit under them can crash.
        os._exit(130)
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    _say(message)
    sys.exit(code)


def _say(message: str) -> None:
    print(f"latentuq: {printable(message)}", file=sys.stderr, flush=True)
