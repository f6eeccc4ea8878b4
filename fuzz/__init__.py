"""Fuzzers of readers, command line and numerics; `make fuzz` runs them (see README.md).

canaria is imported here first, so that every target sees it instrumented.
"""

import contextlib
import importlib
import io
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import atheris

_PARTS = ("audit", "bound", "cli", "cli._games", "evidence", "planning", "report.page", "report.section")
_PARTS += ("report.terminal", "result_files", "score_files", "several", "theory.ladders")

with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["canaria"]):
    for _part in _PARTS:
        importlib.import_module(f"canaria.{_part}")
