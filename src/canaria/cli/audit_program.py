"""`canaria audit-program`: run a script that trains with Opacus, and audit what it trains."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from canaria.cli._options import AsJson, ClaimedEpsilon, Confidence, Out
from canaria.cli._output import one_line_warnings, require_result_file

_DELTA: Final = 1e-5


def audit_program(
    program: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script, or with -m a module.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments for the script.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as of python -m.")] = False,
    canaries: Annotated[int | None, typer.Option(min=1, help="Number of canaries; 1000 if they fit.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of the claim. Default: what the script asks for, or 1e-5.")
    ] = None,
    claimed: ClaimedEpsilon = None,
    confidence: Confidence = 0.95,
    changes_weights: Annotated[
        bool, typer.Option("--changes-weights", help="SCRIPT clamps weights, or the like.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the hidden bits.")] = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Audit a program that trains with Opacus, without changing it.

    The claim is what its accountant says, or what it asked make_private_with_epsilon for. Exit code 1 if the
    claim is refuted, or if training is not what was stated.

    Example: canaria audit-program train.py --delta 1e-5 -- --epochs 3
    """
    from canaria._core.errors import InputError
    from canaria.integrations.opacus import auditing

    require_result_file(out, [] if module else [program])
    words, place = [program, *(arguments or [])], None if out is None else out.absolute()
    with auditing(canaries, rng=seed, changes_weights=changes_weights, insist=True) as audit:
        failed = _run(words, module)
    if audit.stopped is not None:
        raise audit.stopped
    if failed and not audit.trained:
        raise InputError(f"the program failed ({failed}) before it made a private step")
    if delta is None and not audit.promised:
        delta = _DELTA
    with one_line_warnings():
        results = audit.reports(claimed, delta, confidence, name=program if module else Path(program).name)
    results = [replace(one, facts={"program": shlex.join(words), **one.facts}) for one in results]
    for line in dict.fromkeys(audit.refused):
        if line not in audit.unaudited:  # those that made a step are in every result
            typer.echo(f"canaria: warning: an optimizer was not audited: {line}", err=True)
    for result in results:
        typer.echo(result.to_json() if as_json else str(result))
        if place is not None and len(results) == 1:
            result.save(place)
    if place is not None and len(results) > 1:
        raise InputError(
            f"--out writes one result, but the program made {len(results)} trainings; use --json"
        )
    if failed:
        raise InputError(f"the program failed ({failed}); the report covers its training until then")
    raise typer.Exit(1 if any(result.alarming for result in results) else 0)


def _run(words: list[str], module: bool) -> str:
    """Run a program as Python would, and return how it failed; empty if it did not."""
    import runpy
    import traceback

    from canaria._core.errors import CanariaError, InputError, shown

    if not module and not Path(words[0]).is_file():
        raise InputError(f"SCRIPT must be a Python file, or with -m a module, got {shown(words[0])}")
    try:
        with _as_main(words, module), _time_for_a_report():
            if module:
                runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        return "" if ended.code in (None, 0) else f"exit code {ended.code}"
    except CanariaError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        traceback.print_exc()
        return type(error).__name__
    return ""


@contextmanager
def _time_for_a_report() -> Iterator[None]:
    """Make `os._exit` end the program like `sys.exit`, so that its training is reported.

    In a thread other than the program's this is not possible, so it prints that there is no report and sets
    the exit code. Processes that the program forked exit as usual.
    """
    import os
    import threading

    leave, process, thread = os._exit, os.getpid(), threading.get_ident()

    def leave_later(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)
        if threading.get_ident() == thread:
            raise SystemExit(status)
        typer.echo("canaria: the program ended by os._exit in a thread, so there is no report", err=True)
        leave(2)

    os._exit = leave_later
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def _as_main(words: list[str], module: bool) -> Iterator[None]:
    """Set arguments and search path for the program; restore them, and the streams, afterwards."""
    import sys

    arguments, path, streams = sys.argv, list(sys.path), (sys.stdout, sys.stderr)
    sys.argv = words
    sys.path.insert(0, str(Path.cwd() if module else Path(words[0]).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        sys.stdout, sys.stderr = streams
