"""Fuzzers of readers, command line and numerics; `make fuzz` runs them (see README.md).

canaria is imported here first, so that every target sees it instrumented; not so where one input is replayed,
so that what it takes is what it takes a user.
"""

import contextlib
import importlib
import io
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import atheris

_PARTS = ("audit", "bound", "cli", "cli._games", "evidence", "planning", "report.page", "report.section")
_PARTS += ("report.terminal", "result_files", "score_files", "several", "theory.ladders")

_watched = contextlib.nullcontext() if "--replay" in sys.argv else atheris.instrument_imports(["canaria"])
with contextlib.redirect_stderr(io.StringIO()), _watched:
    for _part in _PARTS:
        importlib.import_module(f"canaria.{_part}")
