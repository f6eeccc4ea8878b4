"""Facts about an audited training run that a report states beside the bound."""

from typing import TYPE_CHECKING, Final

from canaria.bounds.conformance import Conformance
from canaria.claims import Claim
from canaria.training.canaries.designs import Design, Dirac
from canaria.training.conformance.tested import not_tested

if TYPE_CHECKING:
    from canaria.training.recording import Recording

UNTESTED: Final = "no noise is stated, few coordinates carry canaries, or dense canaries take part rarely"
NOT_TESTED: Final = f"not tested ({UNTESTED})"
_EXERCISED: Final = {
    "rows": (
        "the sampling rate, the clipper (canary rows have norm 10 C before it), the noise",
        "the computation of per-sample gradients (those of canary rows are replaced)",
    ),
    "sum": (
        "the noise",
        "the sampler, per-sample gradients and the clipper (canaries join the clipped sum, drawn by the "
        "audit)",
    ),
    "gradients": (
        "the clipper (canary gradients have norm 10 C before it), the noise",
        "the sampler (the audit draws the canaries) and the computation of per-sample gradients",
    ),
    "head": (
        "the sampling rate, per-sample gradients, the clipper, the noise",
        "per-sample gradients of the audited model's own layers, and whether these are clipped together "
        "(canaries have parameters of their own)",
    ),
    "clients": (
        "the clipper (updates of canary clients have norm 10 C before it), the weights of clients, the noise",
        "the sampler (the audit draws the canary clients) and what clients compute",
    ),
    "clipped clients": (
        "the weights of clients, the noise",
        "the sampler (the audit draws the canary clients), what clients compute, and whether they clip it",
    ),
}
"""For each injection: what it exercises, up to the noisy sum, and what it does not."""
_CLIPPING: Final = {
    "head": "canaries have layers of their own",
    "sum": "canaries join the sum after it",
    "clipped clients": "clients clip their updates themselves",
}
"""The reason why clipping is not tested, by injection."""
_ISOLATION: Final = "whether a row changes what others contribute: see check_isolation"
"""Canaries have no effect on other rows, so they cannot show that rows have one."""
_OWN_SUM: Final = "whether it is what the clipper makes of your rows, each once and by itself"
"""A recorder sees the sum and tests the function, but not how one came from the other."""
_OTHER_USES: Final = (
    "preprocessing, repeated or kept rows, first weights, chosen settings and checkpoints, later training"
)
"""An audit sees private steps. It cannot know what was learned from the rows besides."""
_RANDOMNESS: Final = "a full, secret seed"
"""Noise from a generator with a known seed looks like any other."""
_HOW_OFTEN: Final = "how often canaries take part was, but not which rows together"
"""What is known of a sampler whose draws were not seen, if canaries are among its rows."""
_PRECISION: Final = "whether noise is rounded, or has few values"
_SAMPLING: Final = {
    "sum": "its draws were not seen; canaries are drawn by the audit itself",
    "gradients": "canaries are drawn by the audit itself",
    "clients": "canary clients are drawn by the audit itself",
    "clipped clients": "canary clients are drawn by the audit itself",
}
"""The reason why sampling is not tested if no draws were seen, by injection."""


def tested_topics(run: "Recording", claim: Claim | None, found: Conformance | None) -> dict[str, str]:
    """For each topic, the reason why it was not tested; empty if it was."""
    excuse = run.excuse.removeprefix("not tested (").removesuffix(")") or UNTESTED
    clipping = _CLIPPING.get(run.injection, "")
    sampling = "" if found is not None else excuse
    if found is None or "sampling" not in found.parts:
        sampling = _SAMPLING.get(run.injection, sampling or _HOW_OFTEN)
    accounting = "" if run.own_family is not None else f"no accountant for {run.sampling.words} is known"
    if claim is None:
        accounting = "no claim was given"
    return {
        "clipping": clipping or ("" if found is not None else excuse),
        "sampling": sampling,
        "noise": "" if found is not None else excuse,
        "accounting": accounting,
        "weights": "the audit sees noisy sums, not what is done with them",
        **({"your own sum": _OWN_SUM} if run.injection == "gradients" else {}),
        **({"precision": _PRECISION} if found is not None and "ties" not in found.parts else {}),
        "isolation": _ISOLATION,
        "other uses of the data": _OTHER_USES,
        "randomness": _RANDOMNESS,
        **run.findings.untested,
    }


def facts_of(run: "Recording", *, tested: bool) -> dict[str, str]:
    """One line of the report for each topic; `tested` says whether there was a conformance test."""
    touched, untouched = _exercised(run.injection, run.design, by_the_optimizer=run.by_the_optimizer)
    return {
        "canaries": f"{run.design.words}{_smaller(run)}; injected by {run.injection!r}{_share(run)}",
        "training": _training(run),
        **_unit(run),
        "exercised": touched,
        "untouched": untouched,
        **({"sampling": run.about_draws} if run.about_draws else {}),
        **({"claim": run.sampling.caveat} if run.sampling.caveat else {}),
        **(not_tested(run) if tested else {"conformance": run.excuse or NOT_TESTED}),
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
    """The norm of canaries in words, if it is not the clip norm."""
    if run.canary_norm == 1:
        return ""
    return f", of {run.canary_norm:.3g} clip norms (the small layers have no weight for each of them)"


def _share(run: "Recording") -> str:
    """The share of batches that canaries take, and the batch size that offsets it; empty if there is none."""
    if run.real_rows == 0:
        return ""
    rows = run.real_rows + len(run.bits)
    batch = run.sample_rate * rows
    # Of a batch the share real_rows / rows are real rows; a batch larger by the inverse of that holds as many
    # as were meant.
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
        "rows is a different claim"
    }


def _exercised(injection: str, design: Design, *, by_the_optimizer: bool) -> tuple[str, str]:
    """Describe in words the parts of training that an audit exercises, and those it does not.

    If `by_the_optimizer`, the audit reads the gradient that the optimizer uses, not only the noisy sum.
    """
    touched, *untouched = _EXERCISED[injection]
    if injection == "rows" and isinstance(design, Dirac) and design.spanning == 0:
        untouched.append("which norm is clipped (a canary's gradient has one coordinate)")
    if by_the_optimizer:
        return f"{touched}, scaling and reduction", "; ".join(untouched)
    return touched, "; ".join([*untouched, "what becomes of the noisy sum after the privatizer"])
