"""The figures of the paper and our own: one module each."""

from typing import Final

from canaria.lab.figures import (
    adaptive_count_in_sets,
    adaptive_dpsgd,
    adaptive_steps,
    bands,
    elements,
    elements_epsilons,
    evidence,
    guesses,
    guesses_epsilons,
    laplace,
    scores,
)
from canaria.lab.figures._experiment import Experiment, summary

EXPERIMENTS: Final[dict[str, Experiment]] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        guesses,
        elements,
        guesses_epsilons,
        elements_epsilons,
        adaptive_dpsgd,
        laplace,
        adaptive_count_in_sets,
        evidence,
        scores,
        adaptive_steps,
        bands,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "summary"]
