"""Programs with a few lines more, run in this process."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from tests.cli.command import Ran


def run_with(lines: dict[str, str], program: Path, *words: str) -> Ran:
    """Run a program as a script, with lines put in after those that begin so; at most three."""
    assert len(lines) <= 3
    written = program.read_text().splitlines()
    for beginning, line in lines.items():
        (place,) = (number for number, other in enumerate(written) if other.startswith(beginning))
        written.insert(place + 1, line)
    out, err = io.StringIO(), io.StringIO()
    code = compile("\n".join(written), str(program), "exec")
    with mock.patch.object(sys, "argv", [str(program), *words]), redirect_stdout(out), redirect_stderr(err):
        exec(code, {"__name__": "__main__"})
    return Ran(0, out.getvalue(), err.getvalue())
