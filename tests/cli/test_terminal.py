"""What a terminal adds: completion of words, colours unless NO_COLOR is set, and the time that work takes."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from canaria._version import __version__
from tests.cli.command import canaria, installed
from tests.report.samples import scored

COMMAND = Path(sys.executable).with_name("canaria")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")
DECIDING = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in DECIDING}


def on_a_terminal(*command: str, **environment: str) -> str:
    """Run a command whose output and errors go to a terminal; what is on its screen."""
    ours, theirs = pty.openpty()
    settings = {**ENVIRONMENT, "TERM": "xterm", **environment}
    running = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=settings)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # how Linux says that nobody holds the other end any more
        pass
    finally:
        os.close(ours)
    assert running.wait(60) == 0
    return seen.decode()


def test_python_runs_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "canaria", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == installed("--version").out == f"canaria {__version__}\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("canaria sc", ["scores", "schema"]),
        ("canaria bound --cor", ["--correct"]),
        ("canaria scores --higher-means ", ["included", "excluded"]),
        ("canaria nothing-of-the-kind", [""]),
    ],
)
def test_bash_completes_verbs_options_and_values(words: str, completed: list[str]) -> None:
    """By the script that `--install-completion` installs, in a real bash."""
    typed = words.split(" ")
    script = f"""
eval "$(_CANARIA_COMPLETE=source_bash {COMMAND})"
complete -p canaria >&2
COMP_WORDS=({" ".join(repr(word) for word in typed)}) COMP_CWORD={len(typed) - 1}
_canaria_completion {COMMAND}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == "complete -o default -F _canaria_completion canaria\n"
    assert sorted(done.stdout.splitlines()) == sorted(completed)


def test_asking_for_a_completion_is_no_failure() -> None:
    asked = {
        **ENVIRONMENT,
        "_CANARIA_COMPLETE": "complete_bash",
        "COMP_WORDS": "canaria bou",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([COMMAND], env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "bound", "")


def test_a_report_has_colours_on_a_terminal_without_no_color(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR stands for the terminal."""
    words = ("report", str(scored().save(tmp_path / "result.json")))
    for name in DECIDING:
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in canaria(*words).out
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert COLOUR.search(canaria(*words).out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(canaria(*words).out)


SLOW = """
import time
from canaria.cli import _progress
_progress.PATIENCE = {patience}
with _progress.working("thinking"):
    time.sleep({seconds})
print("done")
"""


def test_the_time_taken_is_shown_on_a_terminal_where_work_takes_long() -> None:
    slow = (sys.executable, "-c", SLOW.format(patience=0, seconds=0.5))
    seen = on_a_terminal(*slow)
    assert "thinking" in seen
    assert COLOUR.search(seen)
    assert re.search(r"0:00:0\d", seen)
    assert seen.endswith("\x1b[2Kdone\r\n"), "it must leave nothing behind"
    assert not COLOUR.search(on_a_terminal(*slow, NO_COLOR="1"))
    piped = subprocess.run(slow, capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("done\n", "")


def test_long_work_says_what_it_is_at() -> None:
    told = "    from canaria._core.progress import tell\n    tell('the second table')\n    time.sleep"
    staged = SLOW.format(patience=0, seconds=0.5).replace("    time.sleep", told)
    assert "thinking: the second table" in on_a_terminal(sys.executable, "-c", staged)


def test_nothing_is_shown_of_quick_work() -> None:
    assert on_a_terminal(sys.executable, "-c", SLOW.format(patience=100, seconds=0)) == "done\r\n"
