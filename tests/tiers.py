"""Which tests `make test` runs, which wait for `make test-all`, and which run in one process.

Every test function has `BUDGET` seconds of processor time in `make test`. Its cases run there, the shortest first, until
these are used up; the other cases are marked `slow` and wait for `make test-all`. How long a case takes is read from
`tests/durations.tsv`. A case without a line there takes no time worth counting, or is new: it runs in `make test`, so no
test is ever lost. `make durations` measures all tests and writes the file again.

`ESSENTIAL` tests run in `make test` however long they take, so that every framework trains there at least once. A test
that needs a browser, or a package of the extra `test-all`, carries `@pytest.mark.slow` in its own file.
"""

from collections import defaultdict
from pathlib import PurePosixPath
from typing import Final

BUDGET: Final = 0.8
"""Chosen so that `make test` takes less than five minutes on two cores."""

ESSENTIAL: Final = (
    # Opacus: hooks, functorch and ghost clipping; several processes; another program that knows nothing of audits
    "tests/integrations/test_correct_trainings.py::",
    "tests/integrations/test_ddp.py::test_both_ranks_see_the_reduced_gradient",
    "tests/integrations/test_ddp.py::test_what_one_rank_sees_for_certain_all_report",
    "tests/integrations/test_ddp.py::test_an_audit_that_ends_on_one_rank_ends_on_all",
    "tests/integrations/test_programs.py::test_correct_training_is_not_accused[Opacus-0]",
    "tests/integrations/test_programs.py::test_half_of_the_noise_is_found[Opacus]",
    # On Opacus: Lightning, and the Trainer of Hugging Face
    "tests/integrations/test_lightning.py::test_callback_audits_training",
    "tests/integrations/test_hugging_face.py::TestCallback::test_sum_needs_no_change_of_model_or_data",
    # JAX Privacy: independent noise, and banded matrix factorisation
    "tests/integrations/test_jax_privacy.py::test_correct_training_is_not_accused",
    "tests/integrations/test_jax_privacy.py::test_halved_noise_is_flagged_and_a_third_of_it_is_refuted",
    "tests/integrations/test_jax_correlated.py::TestPlan::test_everything_is_the_plan_s",
    # Flower, and a loop of one's own
    "tests/integrations/test_flower.py::TestProgram::test_correct_training_is_not_accused",
    "tests/training/test_recorder.py::test_correct_loops_conform",
    # Bounds do not move
    "tests/golden/test_golden.py::test_numbers_are_those_kept",
)
"""How the names of essential tests begin."""

GROUPS: Final = {
    "jax": ("tests/integrations/test_jax_*.py", "tests/training/test_recorder.py"),
    "transformers": ("tests/integrations/test_hugging_face.py", "tests/integrations/test_isolation.py"),
}
"""Files that compile or load the same things."""
SPLIT: Final = ("tests/test_docs.py", "tests/test_examples.py", "tests/integrations/test_programs.py")
"""Files whose tests take long and share nothing."""


def waiting(seconds: dict[str, float]) -> set[str]:
    """The names of tests that wait for `make test-all`, by the seconds of each."""
    used: defaultdict[str, float] = defaultdict(float)
    late = set()
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        function = name.partition("[")[0]
        used[function] += seconds[name]
        if used[function] > BUDGET and not name.startswith(ESSENTIAL):
            late.add(name)
    return late


def group(name: str) -> str:
    """The tests that run in one process: those of a framework, or those of a file, which share its fixtures."""
    file = PurePosixPath(name.partition("::")[0])
    if str(file) in SPLIT:
        return name
    return next((one for one, files in GROUPS.items() if any(map(file.match, files))), str(file))
