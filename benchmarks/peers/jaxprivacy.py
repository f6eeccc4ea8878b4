"""JAX Privacy: `CanaryScoreAuditor`, every epsilon with every threshold strategy.

It guesses "included" above a threshold and abstains below. Its one-run methods want delta > 0: asked about
delta = 0 they get 1e-12, which can only lower the bound of `epsilon_one_run`; methods that assume a Gaussian
mechanism claim nothing there. The explicit threshold is the median of all scores, which knows no bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax_privacy import auditing

from ._scores import Bits, Floats, claim, groups, seed

PACKAGE = "jax-privacy==2.0.0"
CHECK = "jax_privacy.auditing"

_ALMOST_ZERO = 1e-12
Strategy = Callable[[Floats], Any]


def _bonferroni(scores: Floats) -> Any:
    return auditing.Bonferroni()


def _median(scores: Floats) -> Any:
    return auditing.Explicit(float(np.median(scores)))


def _split(scores: Floats) -> Any:
    return auditing.Split(seed=seed(scores))


def _multi_split(scores: Floats) -> Any:
    return auditing.MultiSplit(seed=seed(scores))


def _ask(scores: Floats, bits: Bits, question: Callable[[auditing.CanaryScoreAuditor], float]) -> float:
    found = groups(scores, bits)
    return 0.0 if found is None else claim(question(auditing.CanaryScoreAuditor(*found)))


def _one_run(scores: Floats, bits: Bits, delta: float, confidence: float, strategy: Strategy) -> float:
    asked = max(delta, _ALMOST_ZERO)
    chosen = strategy(scores)
    return _ask(
        scores, bits, lambda peer: peer.epsilon_one_run(1 - confidence, asked, threshold_strategy=chosen)
    )


def _one_run_fdp(scores: Floats, bits: Bits, delta: float, confidence: float, strategy: Strategy) -> float:
    if delta == 0:
        return 0.0
    chosen = strategy(scores)
    return _ask(
        scores, bits, lambda peer: peer.epsilon_one_run_fdp(1 - confidence, delta, threshold_strategy=chosen)
    )


def _clopper_pearson(
    scores: Floats, bits: Bits, delta: float, confidence: float, strategy: Strategy, one_sided: bool = True
) -> float:
    chosen = strategy(scores)
    return _ask(
        scores,
        bits,
        lambda peer: peer.epsilon_clopper_pearson(
            1 - confidence, delta, one_sided, threshold_strategy=chosen
        ),
    )


def one_run_bonferroni(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run`, level split over the thresholds on the hull seen. Claims a valid lower bound."""
    return _one_run(scores, bits, delta, confidence, _bonferroni)


def one_run_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run` above the median (`Explicit`). Claims a valid lower bound."""
    return _one_run(scores, bits, delta, confidence, _median)


def one_run_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run`, threshold from one half, bound from the other. Claims a valid lower bound."""
    return _one_run(scores, bits, delta, confidence, _split)


def one_run_multi_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run`, median of 100 splits at half the level. Claims a valid lower bound."""
    return _one_run(scores, bits, delta, confidence, _multi_split)


def one_run_fdp_bonferroni(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run_fdp`, Bonferroni. Claims a lower bound; it is one for Gaussian mechanisms only."""
    return _one_run_fdp(scores, bits, delta, confidence, _bonferroni)


def one_run_fdp_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run_fdp` above the median. Claims a lower bound; for Gaussian mechanisms only."""
    return _one_run_fdp(scores, bits, delta, confidence, _median)


def one_run_fdp_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run_fdp`, one split. Claims a lower bound; for Gaussian mechanisms only."""
    return _one_run_fdp(scores, bits, delta, confidence, _split)


def one_run_fdp_multi_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_one_run_fdp`, 100 splits. Claims a lower bound; for Gaussian mechanisms only."""
    return _one_run_fdp(scores, bits, delta, confidence, _multi_split)


def clopper_pearson_bonferroni(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_clopper_pearson` (many runs), TPR over FPR, Bonferroni. Claims a lower bound."""
    return _clopper_pearson(scores, bits, delta, confidence, _bonferroni)


def clopper_pearson_two_sided(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_clopper_pearson` with `one_sided=False`, Bonferroni. Claims a lower bound."""
    return _clopper_pearson(scores, bits, delta, confidence, _bonferroni, one_sided=False)


def clopper_pearson_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_clopper_pearson` (many runs) at the median. Claims a lower bound."""
    return _clopper_pearson(scores, bits, delta, confidence, _median)


def clopper_pearson_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_clopper_pearson` (many runs), one split. Claims a lower bound."""
    return _clopper_pearson(scores, bits, delta, confidence, _split)


def clopper_pearson_multi_split(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_clopper_pearson` (many runs), 100 splits. Claims a lower bound."""
    return _clopper_pearson(scores, bits, delta, confidence, _multi_split)


def gdp(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_from_gdp` (many runs). Claims an estimate with a level, for Gaussian mechanisms."""
    if delta == 0:
        return 0.0
    return _ask(scores, bits, lambda peer: peer.epsilon_from_gdp(1 - confidence, delta))


def raw_counts(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_raw_counts`, thresholds with 50 false positives or more. Claims a point estimate."""
    return _ask(scores, bits, lambda peer: peer.epsilon_raw_counts(delta=delta))


def raw_counts_bootstrap(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`epsilon_raw_counts`, lower quantile of 1000 resamples. Claims no bound on epsilon itself."""
    if raw_counts(scores, bits, delta, confidence) == 0:
        return 0.0  # it fails with a TypeError there
    resampled = auditing.BootstrapParams(quantiles=(1 - confidence,), seed=seed(scores))
    return _ask(
        scores,
        bits,
        lambda peer: np.asarray(peer.epsilon_raw_counts(delta=delta, bootstrap_params=resampled)).item(),
    )


AUDITORS = {
    audit.__name__: audit
    for audit in (
        one_run_bonferroni,
        one_run_median,
        one_run_split,
        one_run_multi_split,
        one_run_fdp_bonferroni,
        one_run_fdp_median,
        one_run_fdp_split,
        one_run_fdp_multi_split,
        clopper_pearson_bonferroni,
        clopper_pearson_two_sided,
        clopper_pearson_median,
        clopper_pearson_split,
        clopper_pearson_multi_split,
        gdp,
        raw_counts,
        raw_counts_bootstrap,
    )
}
