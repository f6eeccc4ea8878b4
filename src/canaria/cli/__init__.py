"""The command line: one file per verb.

A verb reads the arguments, calls the library and prints; it computes nothing itself. It imports the library
when it runs, so that `canaria --help` is quick. No other package depends on this one.
"""

import errno
import io
import os
import sys
import traceback
from contextlib import suppress
from typing import Annotated, Final, NoReturn

import typer

from canaria._version import __version__
from canaria.cli import (
    audit_program,
    bound,
    check,
    compare,
    demo,
    gaps,
    gate,
    plan,
    report,
    reproduce,
    run,
    schema,
    scores,
    validate,
    verify,
)
from canaria.cli._output import Verbs

# typer carries its own copy of click or uses the installed one, depending on its version; the
# ancestor of BadParameter is the right ClickException in both.
_ClickException: Final[type[Exception]] = typer.BadParameter.__mro__[2]

INTERNAL_ERROR: Final = 70
NOBODY_READS: Final = 141
"""The exit code if the reader of a pipe has ended (128 + SIGPIPE)."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="canaria",
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("bound")(bound.bound)
app.command("scores")(scores.scores)
app.command("check")(check.check)
app.command("split")(gate.split)
app.command("gate")(gate.gate)
app.command("verify")(verify.verify)
app.command("run")(run.run)
app.command("audit-program")(audit_program.audit_program)
app.command("gaps")(gaps.gaps)
app.command("plan")(plan.plan)
app.command("validate")(validate.validate)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("schema")(schema.schema)
app.command("demo")(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"canaria {__version__}")
        raise typer.Exit


@app.callback()
def canaria(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Audit differential privacy in one run: valid lower bounds on epsilon.

    \b
    Exit codes: 0 ok; 1 claim refuted or check failed; 2 bad input.
    Example: canaria scores scores.csv --delta 1e-5 --claimed 2
    """  # noqa: D301 (this character keeps the two lines apart in the help)


def main() -> NoReturn:
    """Run the command line; every error is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code: int | None
    try:
        code = app(prog_name="canaria", standalone_mode=False)
    except SystemExit as left:  # 0 after shell completion; 1 would read as "refuted" if the pipe is closed
        code = NOBODY_READS if left.code else 0
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = 130
    except BaseException as error:
        code = _explained(error)
    sys.exit(code or 0)


def _explained(error: BaseException) -> int:
    """Print the error and return the exit code, which is never 1, because that would read as "refuted"."""
    from canaria._core.errors import CanariaError

    if isinstance(error, _ClickException):
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error), err=True)
        else:
            _complain(error.format_message() if hasattr(error, "format_message") else str(error))
    elif isinstance(error, CanariaError):
        _complain(str(error))
    elif isinstance(error, MemoryError):
        _complain("not enough memory for this")
    elif isinstance(error, OSError) and error.errno in _NO_ROOM:
        _give_up_output(error)
    else:
        traceback.print_exception(error)
        _complain(f"internal error, please report it: {type(error).__name__}: {error}")
        return INTERNAL_ERROR
    return 2


def _give_up_output(error: OSError) -> None:
    """Report that there is no room for the output, and discard what Python would write at exit."""
    _complain(f"output cannot be written: {error.strerror}")
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    """Print one line without control characters, which could move the cursor of a terminal."""
    from canaria._core.errors import printable

    if message:
        typer.echo(f"canaria: {' '.join(printable(message).split())}", err=True)
