"""The figures of the paper, and some beyond it."""

from typing import Final

from canaria.lab.figures import adaptive, bands, dpsgd, evidence, laplace, scores
from canaria.lab.figures._experiment import Experiment, summary

EXPERIMENTS: Final[dict[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        dpsgd.GUESSES,
        dpsgd.ELEMENTS,
        dpsgd.GUESSES_EPSILONS,
        dpsgd.ELEMENTS_EPSILONS,
        adaptive.ADAPTIVE_DPSGD,
        laplace.EXPERIMENT,
        adaptive.ADAPTIVE_COUNT_IN_SETS,
        evidence.EXPERIMENT,
        scores.EXPERIMENT,
        adaptive.ADAPTIVE_STEPS,
        bands.EXPERIMENT,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "summary"]
