"""What a reader of a report is told of an audited training run, beside its bound."""

from typing import TYPE_CHECKING, Final

from canaria.training.canaries import exercised

if TYPE_CHECKING:
    from canaria.training.recording import Recording

NOT_TESTED: Final = (
    "not tested (no noise is stated, few coordinates carry canaries, or dense canaries take part rarely)"
)


def facts_of(run: "Recording", *, tested: bool) -> dict[str, str]:
    """A line for each topic; `tested` says whether there was a conformance test."""
    touched, untouched = exercised(run.injection, run.design, by_the_optimizer=run.by_the_optimizer)
    return {
        "canaries": f"{run.design.words}{_smaller(run)}; injected by {run.injection!r}{_share(run)}",
        "training": _training(run),
        **_unit(run),
        "exercised": touched,
        "untouched": untouched,
        **({"claim": run.sampling.caveat} if run.sampling.caveat else {}),
        **(run.not_tested() if tested else {"conformance": run.excuse or NOT_TESTED}),
        **({"unseen": run.ended} if run.ended else {}),
    }


def _training(run: "Recording") -> str:
    sampling = "" if run.sampling.is_poisson else f" ({run.sampling.words})"
    stated = "as stated, root mean square" if run.noise_changes else run.sampling.noise_words
    return (
        f"{run.steps} steps, sample rate {run.sample_rate:.6g}{sampling}, "
        f"noise multiplier {run.noise_multiplier:.6g} ({stated})"
    )


def _smaller(run: "Recording") -> str:
    """The norm of canaries, where it is not the clip norm."""
    if run.canary_norm == 1:
        return ""
    return f", of {run.canary_norm:.3g} clip norms (the small layers have no weight for each of them)"


def _share(run: "Recording") -> str:
    """What canaries take of a batch, and the batch size that makes up for it; empty if it is nothing."""
    if run.real_rows == 0:
        return ""
    rows = run.real_rows + len(run.bits)
    batch = run.sample_rate * rows
    wanted = round(batch * rows / run.real_rows)
    return (
        f"; {len(run.bits) / rows:.0%} of every batch: batches of {wanted} instead of {round(batch)} "
        "would hold as many real rows as without canaries"
    )


def _unit(run: "Recording") -> dict[str, str]:
    if run.unit == "row":
        return {}
    if run.rows == 1:
        return {"unit": f"a {run.unit}, clipped and drawn as a whole"}
    return {
        "unit": f"a {run.unit} of {run.rows} rows, each clipped and drawn by itself; a claim about "
        "rows is another one"
    }
