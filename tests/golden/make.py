"""Compute the numbers of the golden files again, from the inputs that they hold in full.

    python -m tests.golden.make evidence rules trainings

Run it only when a bound is meant to move, for the kinds that the change names, and say so in the changelog.
"""

import json
import sys
import warnings

from tests.golden.numbers import FOLDER, FOUND


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        path = FOLDER / f"{name}.jsonl"
        cases = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [json.dumps({**case, "numbers": FOUND[name](case)}, allow_nan=False) for case in cases]
        path.write_text("\n".join(lines) + "\n")
        sys.stdout.write(f"{path.name}: {len(lines)} cases, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
