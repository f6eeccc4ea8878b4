"""Known mechanisms, one file per family: how to sample them, their privacy loss, their exact theory.

`Function` turns any function into a mechanism. Mechanisms do not know how they are guessed: nothing from
rules or evidence is imported here.
"""

from canaria.mechanisms._parse import MECHANISMS, parse_mechanism
from canaria.mechanisms._protocol import AnalysedMechanism, Mechanism, Outcomes, ScoredMechanism
from canaria.mechanisms.correlated import Correlated
from canaria.mechanisms.counting import Count, CountInSets, NoisyCountInSets, Symmetric
from canaria.mechanisms.dpsgd import SubsampledGaussian, algorithm_3, log_likelihoods_of
from canaria.mechanisms.exposing import AllOrNothing, NameAndShame
from canaria.mechanisms.function import Function
from canaria.mechanisms.local import Local, LocalGaussian, LocalLaplace, RandomizedResponse
from canaria.mechanisms.participation import BallsInBins, CyclicPoisson, InOrder, MinSeparation
from canaria.mechanisms.strategies import Strategy
from canaria.mechanisms.xor import Xor, XorInPairs, XorRandomizedResponse

__all__ = [
    "MECHANISMS",
    "AllOrNothing",
    "AnalysedMechanism",
    "BallsInBins",
    "Correlated",
    "Count",
    "CountInSets",
    "CyclicPoisson",
    "Function",
    "InOrder",
    "Local",
    "LocalGaussian",
    "LocalLaplace",
    "Mechanism",
    "MinSeparation",
    "NameAndShame",
    "NoisyCountInSets",
    "Outcomes",
    "RandomizedResponse",
    "ScoredMechanism",
    "Strategy",
    "SubsampledGaussian",
    "Symmetric",
    "Xor",
    "XorInPairs",
    "XorRandomizedResponse",
    "algorithm_3",
    "log_likelihoods_of",
    "parse_mechanism",
]
