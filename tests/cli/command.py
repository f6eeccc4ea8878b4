"""The command line, run in this process or in one of its own."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from canaria.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def installed(*words: str, stdin: str = "") -> Ran:
    """Run the installed command in a process of its own."""
    command = [str(Path(sys.executable).with_name("canaria")), *words]
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


def canaria(*words: str, stdin: str = "") -> Ran:
    """Run what the installed command runs, in this process."""
    out, err = io.StringIO(), io.StringIO()
    typed = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with (
        mock.patch.multiple(sys, argv=["canaria", *words], stdin=typed),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    assert isinstance(left.value.code, int)
    return Ran(left.value.code, out.getvalue(), err.getvalue())
