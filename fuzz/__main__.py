"""Run every target for its part of so many inputs, then the oracle on a hundredth as many.

python -m fuzz --inputs 1000000
"""

import argparse
import subprocess
import sys

TARGETS = ("score_files", "result_files", "command_line", "evidence")
ORACLE = 100
"""One input of so many is held against the oracle."""


def main() -> None:
    """Run them one after the other; what is wrong with one does not keep the next from running."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    inputs = parser.parse_args().inputs
    runs = {**dict.fromkeys(TARGETS, -(-inputs // len(TARGETS))), "against_oracle": -(-inputs // ORACLE)}
    failed = [name for name, count in runs.items() if not _runs(name, count)]
    print(f"failed: {', '.join(failed)}" if failed else "nothing found", flush=True)
    raise SystemExit(bool(failed))


def _runs(name: str, inputs: int) -> bool:
    command = [sys.executable, "-m", f"fuzz.{name}", "--inputs", str(inputs)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    main()
