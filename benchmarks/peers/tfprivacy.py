"""TensorFlow Privacy: `EpsilonLowerBound`, the largest bound on a ratio of rates over all thresholds.

tensorflow-privacy 0.9.0 no longer holds it; tensorflow-empirical-privacy 0.1.0 does, under the same name.
With all that both ask for (3.5 GB) it does not load: tensorflow-estimator 2.15 needs an older TensorFlow
than pip finds, and scikit-learn has dropped a private function that it calls. It uses no TensorFlow itself,
so it is installed with the few packages that it uses, and told not to load the rest. It knows no delta: its
bound is about delta = 0, whatever it is asked.
"""

import sys

import numpy as np

from ._scores import Bits, Floats, claim, groups

sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]  # its own switch, read when it is imported

from tensorflow_privacy.privacy.privacy_tests.epsilon_lower_bound import (  # noqa: E402
    BoundMethod,
    EpsilonLowerBound,
)

PACKAGE = "tensorflow-empirical-privacy==0.1.0"
CHECK = "peers.tfprivacy"
ALSO = (
    "immutabledict~=2.2",
    "numpy<2",
    "pandas<2",
    "scikit-learn<1.7",
    "scipy<1.16",
    "statsmodels==0.14.0",
)
ALONE = ("tensorflow-privacy==0.9.0", "tensorflow-empirical-privacy==0.1.0")


def _best(scores: Floats, bits: Bits, confidence: float, method: BoundMethod, at: Floats | None) -> float:
    found = groups(scores, bits)
    if found is None:
        return 0.0
    with np.errstate(all="ignore"):
        peer = EpsilonLowerBound(*found, alpha=1 - confidence, thresholds=at)
        bounds = peer.compute_epsilon_lower_bound(method, k=1)
    return claim(bounds[0]) if len(bounds) else 0.0


def clopper_pearson_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `clopper-pearson`, best threshold. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.CLOPPER_PEARSON, None)


def clopper_pearson_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `clopper-pearson`, `thresholds=[median]`. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.CLOPPER_PEARSON, np.array([np.median(scores)]))


def katz_log_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `katz-log` (asymptotic), best threshold. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.KATZ_LOG, None)


def adjusted_log_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `adjusted-log` (asymptotic), best threshold. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.ADJUSTED_LOG, None)


def bailey_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `bailey` (asymptotic), best threshold. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.BAILEY, None)


def inv_sinh_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`EpsilonLowerBound`, `inv-sinh` (asymptotic), best threshold. Claims a statistical lower bound."""
    return _best(scores, bits, confidence, BoundMethod.INV_SINH, None)


AUDITORS = {
    audit.__name__: audit
    for audit in (
        clopper_pearson_best,
        clopper_pearson_median,
        katz_log_best,
        adjusted_log_best,
        bailey_best,
        inv_sinh_best,
    )
}
