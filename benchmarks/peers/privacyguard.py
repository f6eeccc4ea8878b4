"""PrivacyGuard: `MIAResults`, `AnalysisNode`, `FPRLowerBoundAnalysisNode` and `FDPAnalysisNode`.

All but the last fix the confidence at 95%; asked for another they are refused here. `FDPAnalysisNode` tries
noise from 0.001 to 9.991 one by one, and answers with the last if none is refuted: at delta = 1e-5 never less
than 0.34. It assumes a Gaussian mechanism; at delta = 0, where that has no epsilon, it claims nothing here.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from privacy_guard.analysis.base_analysis_input import BaseAnalysisInput
from privacy_guard.analysis.mia.analysis_node import AnalysisNode
from privacy_guard.analysis.mia.fdp_analysis_node import FDPAnalysisNode
from privacy_guard.analysis.mia.fpr_lower_bound_analysis_node import FPRLowerBoundAnalysisNode
from privacy_guard.analysis.mia.mia_results import MIAResults

from ._scores import Bits, Floats, claim, groups, right_guesses, seed

PACKAGE = "privacyguard-platform==0.0.2"
CHECK = "privacy_guard.analysis.mia.analysis_node"

_CONFIDENCE = 0.95
_NUMBERS_OF_GUESSES = 10


def _only_95(confidence: float) -> None:
    if abs(confidence - _CONFIDENCE) > 1e-9:
        raise ValueError(f"confidence must be 0.95, which PrivacyGuard fixes, got {confidence}")


@contextmanager
def _seeded(scores: Floats) -> Iterator[None]:
    """It draws from numpy's global generator, which is put back afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed(scores))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _analysed(node: type[AnalysisNode], scores: Floats, bits: Bits, delta: float, confidence: float) -> Any:
    """The outputs of an analysis node with its own settings; None where a group is too small."""
    _only_95(confidence)
    found = groups(scores, bits)
    if found is None:
        return None
    members, others = (pd.DataFrame({"score": values}) for values in found)
    with _seeded(scores), np.errstate(all="ignore"):
        return node(BaseAnalysisInput(members, others), delta, len(scores)).run_analysis()


def clopper_pearson_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`MIAResults.compute_acc_auc_ci_epsilon`, best threshold. Claims an "empirical epsilon"."""
    _only_95(confidence)
    found = groups(scores, bits)
    if found is None:
        return 0.0
    with np.errstate(all="ignore"):
        answers = MIAResults(*map(torch.from_numpy, found)).compute_acc_auc_ci_epsilon(delta)
    return claim(answers[2])


def bootstrap_tpr(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`AnalysisNode`, `eps_lb`: at 1% TPR, 2.5% quantile of 1000 resamples. Claims a lower bound."""
    outputs = _analysed(AnalysisNode, scores, bits, delta, confidence)
    return 0.0 if outputs is None else claim(outputs.eps_lb)


def bootstrap_fpr_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`FPRLowerBoundAnalysisNode`, largest of 100 in `eps_fpr_lb`. Claims a lower bound at each FPR."""
    outputs = _analysed(FPRLowerBoundAnalysisNode, scores, bits, delta, confidence)
    return 0.0 if outputs is None else claim(np.nanmax(outputs.eps_fpr_lb))


def _node(scores: Floats, bits: Bits, delta: float, confidence: float, taken: int) -> FDPAnalysisNode:
    return FDPAnalysisNode(
        m=len(scores),
        c=right_guesses(scores, bits, taken),
        c_cap=taken,
        threshold=1 - confidence,
        delta=delta,
    )


def _if_refuted(node: FDPAnalysisNode) -> float:
    """What the node answers, by bisection over its noises; 0 where it refutes none of them."""

    def refuted(place: int) -> bool:
        tried = node.inverse_blow_up_functions[place]
        return not node.audit_rh_with_cap(tried, node.m, node.c, node.c_cap)

    noises = node.candidate_noises
    first = bisect_left(range(len(noises)), True, key=refuted)
    return node.calculate_epsilon_gaussian(noises[first]) if first < len(noises) else 0.0


def fdp_all(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`FDPAnalysisNode.run_analysis`, every element guessed. Claims a lower bound, if Gaussian."""
    if delta == 0:
        return 0.0
    return claim(_node(scores, bits, delta, confidence, len(scores)).run_analysis().eps)


def fdp_all_if_refuted(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """The same by bisection (`audit_rh_with_cap`), 0 if nothing is refuted. Claims it if Gaussian."""
    return 0.0 if delta == 0 else _if_refuted(_node(scores, bits, delta, confidence, len(scores)))


def fdp_best_if_refuted(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """The same, the best of 10 numbers of guesses (tutorial). Claims an "optimal epsilon", if Gaussian."""
    if delta == 0:
        return 0.0
    numbers = np.unique(np.geomspace(min(20, len(scores)), len(scores), _NUMBERS_OF_GUESSES).astype(int))
    return max(_if_refuted(_node(scores, bits, delta, confidence, int(taken))) for taken in numbers)


AUDITORS = {
    audit.__name__: audit
    for audit in (
        clopper_pearson_best,
        bootstrap_tpr,
        bootstrap_fpr_best,
        fdp_all,
        fdp_all_if_refuted,
        fdp_best_if_refuted,
    )
}
