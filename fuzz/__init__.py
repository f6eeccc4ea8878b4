"""Fuzzers of readers, command line and numerics; `make fuzz` runs them (see README.md).

canaria is imported here first, so that every target sees it instrumented; not so where one input is replayed,
or files are timed, so that what it takes is what it takes a user.
"""

import contextlib
import importlib
import io
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

_PARTS = (
    "cli",
    "evidence",
    "files",
    "game",
    "report.page",
    "report.terminal",
    "rules",
    "testing",
    "theory",
)

_watched: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
if "--replay" not in sys.argv and "fuzz.slow_files" not in sys.orig_argv:
    import atheris

    _watched = atheris.instrument_imports(["canaria"])
with contextlib.redirect_stderr(io.StringIO()), _watched:
    for _part in _PARTS:
        importlib.import_module(f"canaria.{_part}")
