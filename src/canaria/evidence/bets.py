"""Evidence from bets: adaptive guessing, valid at any time (theory: adaptive auditing)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria import _validate
from canaria._validate import Floats, Hits, InputError
from canaria.evidence import _binomial, _text
from canaria.evidence._protocol import ALL_COUNTED, FAIR_COINS, Progress, Tally, kind, progress_of

_ROUND_DOWN: Final = 1e-9


@kind
@dataclass(frozen=True, eq=False, init=False)
class Bets:
    """Hits in guessing order, each with the confidence that was stated before its bit was revealed.

    Against a claim epsilon a wealth starts at 1. A guess with confidence q > p = p(epsilon) multiplies
    it by q / p if right and by (1 - q) / (1 - p) if wrong; a guess with q <= p is skipped. With
    `confidences=None` the wealth is the likelihood ratio averaged over q uniform on [p, 1] (none below
    p, which would break validity).

    Proved, for independent fair bits, whatever the order, the abstentions, the stopping rule and the
    confidences, as long as each is decided before its bit is revealed: under epsilon-DP every hit has
    conditional probability at most p, so the wealth is a supermartingale and reaches 1 / beta with
    probability at most beta (Ville). With delta > 0 the plain delta rule adds B = n delta / (1 + e^epsilon):

        p-value = min(1, 1 / (largest wealth) + B)

    Wealth is not monotone in epsilon, so bounds are found on a fixed grid.

    >>> Bets([0.9, 0.8, 0.6], [1, 0, 1]).wealth(0.5).round(6).tolist()
    [1.445878, 0.765945, 0.765945]
    """

    confidences: Floats | None
    hits: Hits
    elements: int

    inversion: ClassVar[str] = "late grid"
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        ALL_COUNTED,
        "each guess and its confidence were decided before its bit was revealed",
    )

    def __init__(self, confidences: Any, hits: Any, elements: int | None = None) -> None:
        seen = _validate.hits(hits)
        stated = None if confidences is None else _validate.vector("confidences", confidences)
        if stated is not None:
            _validate.same_length("confidences", len(stated), "hits", len(seen))
            bad = (stated < 0) | (stated >= 1)
            if bad.any():
                raise InputError(
                    f"confidences must be at least 0 and below 1, got {stated[bad][0]:g}; "
                    "a bet that stakes everything can never be won back"
                )
        _validate.assign(
            self,
            confidences=stated,
            hits=seen,
            elements=_validate.elements(elements, len(seen)),
        )

    @property
    def method(self) -> str:
        """How the wealth is made."""
        return "mixture bets" if self.confidences is None else "bets"

    def to_dict(self) -> dict[str, Any]:
        """Confidences and hits, for JSON."""
        return {
            "confidences": _text.numbers_to_json(self.confidences),
            "hits": _text.hits_to_text(self.hits),
            "elements": self.elements,
        }

    @classmethod
    def from_dict(cls, confidences: Any, hits: Any, elements: Any) -> "Bets":
        """Read what `to_dict` wrote."""
        stated = _text.numbers_from_json("confidences", confidences)
        return cls(stated, _text.hits_from_text(hits), elements)

    def tally(self, epsilon: float) -> Tally:
        """The guesses that were bet on."""
        taken = self._taken(epsilon)
        return Tally(int((self.hits & taken).sum()), int(taken.sum()))

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return "each guess and its stake before its own bit; bits revealed earlier were known"

    def progress(self, epsilon: float) -> Progress:
        """The guesses that were bet on, in the order of guessing."""
        taken = self._taken(epsilon)
        return progress_of(self.hits[taken] if taken.any() else self.hits)

    def wealth(self, epsilon: float) -> Floats:
        """The wealth after each guess."""
        with np.errstate(over="ignore"):
            return np.exp(self._log_wealth(_validate.nonnegative("epsilon", epsilon)))

    def p_value(self, epsilon: float, delta: float = 0.0) -> float:
        """1 over the largest wealth ever reached, and the plain delta rule."""
        epsilon, delta = _validate.nonnegative("epsilon", epsilon), _validate.delta(delta)
        path = self._log_wealth(epsilon)
        best = max(0.0, float(path.max()) - self._rounding(path))
        budget = float(_binomial.flip_budget(self.elements, epsilon, delta))
        return _binomial.rounded_up(max(math.exp(-best), _binomial.SMALLEST_TAIL) + budget)

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the final wealth, which is at most the largest."""
        final = self._final_log_wealth(epsilons)
        sure = np.maximum(final - _ROUND_DOWN * (2 + np.abs(final)) * max(1.0, len(self.hits) / 1e5), -700.0)
        budget = _binomial.flip_budget(self.elements, epsilons, delta)
        return np.asarray(np.exp(-sure) + budget <= level, dtype=np.int8)

    def perfect(self) -> "Bets":
        """The same audit with every guess right."""
        return Bets(self.confidences, np.ones_like(self.hits), self.elements)

    def _rounding(self, path: Floats) -> float:
        """What adding up so many gains can have rounded up."""
        largest = float(np.abs(path[np.isfinite(path)]).max(initial=0.0))
        return _ROUND_DOWN + len(path) * 2.0**-52 * largest

    def _taken(self, epsilon: float) -> Hits:
        if self.confidences is None:
            return np.ones_like(self.hits)
        return np.asarray(self.confidences > _binomial.success(epsilon))

    def _log_wealth(self, epsilon: float) -> Floats:
        if self.confidences is None:
            guesses = np.arange(1, len(self.hits) + 1)
            return _log_mixture(np.cumsum(self.hits), guesses, epsilon)
        stated = np.where(self._taken(epsilon), self.confidences, 0.5)
        right = np.log(stated) + np.logaddexp(0.0, -epsilon)
        wrong = np.log1p(-stated) + np.logaddexp(0.0, epsilon)
        gains = np.where(self.hits, right, wrong)
        return np.cumsum(np.where(self._taken(epsilon), gains, 0.0))

    def _final_log_wealth(self, epsilons: Floats) -> Floats:
        if self.confidences is None:
            return _log_mixture(self.hits.sum(), len(self.hits), epsilons)
        order = np.argsort(self.confidences)
        stated, hits = self.confidences[order], self.hits[order]
        taken_from = np.searchsorted(stated, _binomial.success(epsilons), side="right")
        safe = np.maximum(stated, 0.5)
        own = np.where(hits, np.log(safe), np.log1p(-safe))
        owns, rights = (_suffix_sums(values)[taken_from] for values in (own, hits))
        wrongs = len(hits) - taken_from - rights
        claimed = -rights * np.logaddexp(0.0, -epsilons) - wrongs * np.logaddexp(0.0, epsilons)
        return np.asarray(owns - claimed)


def _suffix_sums(values: npt.NDArray[Any]) -> Floats:
    return np.append(np.cumsum(values[::-1], dtype=np.float64)[::-1], 0.0)


def _log_mixture(correct: Any, taken: Any, epsilon: Any) -> Floats:
    """Ln of the average over q in [p, 1] of q^h (1-q)^m / (p^h (1-p)^m).

    The integral of q^h (1-q)^m over [p, 1] is an incomplete beta function, and its complete part
    over p^h (1-p)^m is 1 / ((h + m + 1) Pr[Binomial(h + m, p) = h]).
    """
    wrong = _binomial.failure(epsilon)
    possible = np.where(wrong > 0, wrong, 0.5)
    with np.errstate(divide="ignore"):
        share = np.log(special.betainc(taken - correct + 1.0, correct + 1.0, possible))
    log_ratio = share - np.log(possible * (taken + 1.0)) - _binomial.log_pmf(correct, taken, epsilon)
    return np.where(wrong > 0, log_ratio, 0.0)
