"""Evidence from bets: adaptive guessing, valid at any time."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Hits, Integers, Numbers
from canaria._core.effort import Effort
from canaria._core.errors import InputError
from canaria.claims import Claim
from canaria.evidence import _mixture, _text
from canaria.evidence.base import ALL_COUNTED, FAIR_COINS, Evidence, Inversion, Progress, Tally, progress_of

_ROUND_DOWN: Final = 1e-9
_AT_ONCE: Final = 20_000
_GAIN: Final = 0.1
"""Eta n delta, at most: two nats at a level of 0.05."""
_BELOW_ONE: Final = 1 - 1e-15
_LARGEST_WEALTH: Final = 600.0
"""Beyond it a p-value is below `SMALLEST_TAIL`."""


@dataclass(frozen=True, eq=False, init=False)
class Bets(Evidence):
    """Hits in guessing order, each with the confidence that was stated before its bit was revealed.

    Against a claim epsilon a wealth starts at 1. A guess with confidence q > p = p(epsilon) multiplies it by
    q / p if right and by (1 - q) / (1 - p) if wrong; a guess with q <= p is skipped. With `confidences=None`
    the wealth is the likelihood ratio averaged over q uniform on [p, 1] (none below p, which would break
    validity). With delta > 0 no confidence counts as more than p e^eta, where eta = min(ln(1 / p), 0.1 / (n
    delta)).

    Proved (Theorem 10; Theorem 11 for the average), for independent fair bits, whatever the order, the
    abstentions, the stopping rule and the confidences, as long as each is decided before its bit is revealed:
    under epsilon-DP every hit has conditional probability at most p, so the wealth is a supermartingale and
    reaches 1 / beta with probability at most beta (Ville). With delta > 0 a wealth that counts its logarithm
    beyond 1 / beta gains at most eta n delta / beta by all flips together. With L the logarithm of the
    largest wealth ever reached, the p-value is the solution beta of

        ln(1 / beta) + eta n delta / beta = L

    which is at most two nats dearer at beta = 0.05 than delta = 0, whatever n. Wealth is not monotone in
    epsilon, so bounds are found on a fixed grid.

    Args:
        confidences: The stated confidence of each guess, at least 0 and below 1; None for the mixture over
            all confidences.
        hits: Whether each guess was right (booleans, 0/1 or -1/+1), in the order of guessing.
        elements: The number of hidden bits of the audit; by default one per hit.

    Attributes:
        confidences: The stated confidences, or None.
        hits: Whether each guess was right.
        elements: The number of hidden bits of the audit.

    Raises:
        InputError: If an argument is not usable.

    Example:
        >>> Bets([0.9, 0.8, 0.6], [1, 0, 1]).wealth(0.5).round(6).tolist()
        [1.445878, 0.765945, 0.765945]

    """

    confidences: Floats | None
    hits: Hits
    elements: int

    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "Budget"
    weighs: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        ALL_COUNTED,
        "each guess and its confidence were decided before its bit was revealed",
    )

    def __init__(
        self, confidences: npt.ArrayLike | None, hits: npt.ArrayLike, elements: int | None = None
    ) -> None:
        seen = checks.hits(hits)
        stated = None if confidences is None else checks.vector("confidences", confidences)
        if stated is not None:
            checks.same_length("confidences", len(stated), "hits", len(seen))
            bad = (stated < 0) | (stated >= 1)
            if bad.any():
                raise InputError(
                    f"confidences must be at least 0 and below 1, got {stated[bad][0]:g}; "
                    "a bet that stakes everything can never be won back"
                )
        checks.assign(
            self,
            confidences=stated,
            hits=seen,
            elements=checks.elements(elements, len(seen)),
        )

    @property
    def method(self) -> str:
        """The name of the method: "mixture bets" if no confidences are stated, else "bets"."""
        return "mixture bets" if self.confidences is None else "bets"

    def to_dict(self) -> dict[str, Any]:
        """Confidences and hits, for JSON."""
        return {
            "confidences": _text.numbers_to_json(self.confidences),
            "hits": _text.hits_to_text(self.hits),
            "elements": self.elements,
        }

    @classmethod
    def read(cls, **fields: Any) -> "Bets":
        """Evidence from what `to_dict` wrote."""
        return cls._of_text(**fields)

    @classmethod
    def _of_text(cls, confidences: object, hits: object, elements: int) -> "Bets":
        stated = _text.numbers_from_json("confidences", confidences)
        return cls(stated, _text.hits_from_text(hits), elements)

    def effort(self, delta: float) -> Effort:
        """One pass over the bets for each stretch of claims; for the mixture, one over all guesses."""
        passed = effort.CALL + effort.RATIO * len(self.hits)
        if self.confidences is None:
            return Effort(10 * passed, 20 * passed)
        return Effort(passed, 40 * passed)

    def tally(self, epsilon: float) -> Tally:
        """The guesses that were bet on against this claim."""
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
        """The wealth after each guess, against a claim at delta = 0.

        Args:
            epsilon: The epsilon of the claim.

        Returns:
            One number per guess.

        Raises:
            InputError: If epsilon is negative or not a number.

        """
        with np.errstate(over="ignore"):
            return np.exp(self._log_wealth(checks.nonnegative("epsilon", epsilon)))

    def p_value(self, claim: Claim) -> float:
        """The level at which the largest wealth ever reached is significant, whatever delta adds to it.

        Args:
            claim: The claim to test.

        Returns:
            The p-value, rounded up.

        """
        point = claim.point(self.charged)
        epsilon, spent = point.epsilon, self.elements * point.delta
        cap = _cap(epsilon, spent)
        if self.confidences is None:
            wealth = _mixture.log_mixture(*self._corners, epsilon, _highest(epsilon, cap))
            return self._p_value_of(wealth, _mixture.most_lost(len(self.hits)), cap, spent)
        return self._p_value_of(np.cumsum(self._gains(epsilon, epsilon, spent)), 0.0, cap, spent)

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the final wealth, which is at most the largest; then whole stretches of claims.

        The p-value needs the largest wealth along the path, which is a pass over all bets for each claim. Two
        cheaper bounds refute most claims of the grid. Both replace L of Theorem 10 by something smaller, and
        P falls with L, so what they refute is refuted:

        1. The wealth after the last bet. Sums over all bets that a claim takes are differences of suffix sums
           by confidence, so all claims together cost one sort. It is close where the guesser does well to the
           end.
        2. The least that each bet gains against any claim of a stretch (Theorem 11 (d)): one pass settles
           the whole stretch.
        """
        spent = self.elements * delta
        if self.confidences is None:
            return self._screen_mixture(epsilons, spent, level)
        final = self._final_log_wealth(epsilons, spent)
        sure = final - _ROUND_DOWN * (2 + np.abs(final)) * max(1.0, len(self.hits) / 1e5)
        verdict = np.asarray(_from_wealth(sure, _cap(epsilons, spent), spent) <= level, dtype=np.int8)
        self._settle_stretches(verdict, epsilons, spent, level)
        return verdict

    def _screen_mixture(self, epsilons: Floats, spent: float, level: float) -> npt.NDArray[np.int8]:
        """Settle many claims at once by all corners, up to the first that is surely not refuted.

        The largest wealth is reached at a corner of the convex hull of the path (Theorem 11 (b)), so this is
        the p-value itself, but for rounding. Claims for which rounding might decide stay open.
        """
        verdict = np.zeros(len(epsilons), dtype=np.int8)
        right, guesses = (counts[:, None] for counts in self._corners)
        at_once = max(1, _AT_ONCE // len(right))
        for start in range(0, len(epsilons), at_once):
            some = slice(start, start + at_once)
            cap = _cap(epsilons[some], spent)
            wealth = _mixture.log_mixture(right, guesses, epsilons[some], _highest(epsilons[some], cap))
            best = np.maximum(wealth.max(axis=0), 0.0)
            rounding = _ROUND_DOWN + len(self.hits) * 2.0**-52 * np.maximum(
                best, _mixture.most_lost(len(self.hits))
            )
            least, most = (_from_wealth(best - less, cap, spent) for less in (0.0, 2 * rounding))
            verdict[some] = -(least > level * binomial.ROUND_UP).astype(np.int8)
            verdict[some][most <= level] = 1
            if (verdict[some] < 0).any():
                break
        return verdict

    def _settle_stretches(
        self, verdict: npt.NDArray[np.int8], epsilons: Floats, spent: float, level: float
    ) -> None:
        """Mark claims as refuted, from the first that is open, in stretches that double while they are.

        A stretch that is not refuted as a whole is halved, and tried again. One of a single claim that is not
        refuted leaves it and all later claims open, of which `p_value` decides the first ones.
        """
        done, width = 0, 1
        while width > 0 and done < len(epsilons):
            if verdict[done] == 1:
                done += 1
                continue
            last = min(done + width, len(epsilons)) - 1
            first = float(epsilons[done])
            wealth = np.cumsum(self._gains(first, float(epsilons[last]), spent))
            refuted = self._p_value_of(wealth, 0.0, _cap(first, spent), spent, margins=2) <= level
            if refuted:
                verdict[done : last + 1] = 1
            width = 2 * width if refuted else width // 2

    def _p_value_of(self, wealth: Floats, lost: float, cap: Numbers, spent: float, margins: int = 1) -> float:
        """The p-value for a path of the wealth, or its corners, less what rounding can have added."""
        largest = float(np.abs(wealth[np.isfinite(wealth)]).max(initial=lost))
        rounding = _ROUND_DOWN + len(self.hits) * 2.0**-52 * largest
        best = max(0.0, float(wealth.max(initial=0.0)) - margins * rounding)
        return float(_from_wealth(best, cap, spent))

    def holds_adaptively(self, guessed: int | None) -> bool:
        """Always true: a bet is decided before its bit is revealed."""
        return True

    @property
    def most_guesses(self) -> int:
        """The number of elements, all of which could have been guessed."""
        return self.elements

    def best_of_size(self, guesses: int) -> "Bets":
        """An audit with this many guesses, all right, each staking almost the whole wealth."""
        return Bets(
            np.full(guesses, math.nextafter(1, 0)), np.ones(guesses, bool), self.elements_for(guesses)
        )

    def with_all_right(self) -> "Bets":
        """The same stakes with every guess right."""
        return Bets(self.confidences, np.ones_like(self.hits), self.elements)

    def _taken(self, epsilon: float) -> Hits:
        if self.confidences is None:
            return np.ones_like(self.hits)
        return np.asarray(self.confidences > binomial.success(epsilon))

    def _log_wealth(self, epsilon: float) -> Floats:
        if self.confidences is None:
            guesses = np.arange(1, len(self.hits) + 1)
            return _mixture.log_mixture(np.cumsum(self.hits, dtype=np.int64), guesses, epsilon)
        stated = np.where(self._taken(epsilon), self.confidences, 0.5)
        right = np.log(stated) + np.logaddexp(0.0, -epsilon)
        wrong = np.log1p(-stated) + np.logaddexp(0.0, epsilon)
        gains = np.where(self.hits, right, wrong)
        return np.cumsum(np.where(self._taken(epsilon), gains, 0.0))

    @cached_property
    def _serious(self) -> tuple[Floats, Hits, Floats, Floats]:
        """The bets that any claim takes, those above 1/2: confidences, hits, ln q and ln(1 - q)."""
        assert self.confidences is not None
        serious = self.confidences > 0.5
        stated = self.confidences[serious]
        return stated, self.hits[serious], np.log(stated), np.log1p(-stated)

    def _gains(self, first: float, last: float, spent: float) -> Floats:
        """The least that each bet gains against any claim from `first` to `last`.

        Against p a hit gains max(0, min(ln(q / p), eta)), which falls with p, as eta does. A miss loses the
        less of ln((1 - q) / (1 - p)), which is nearer to 0 for larger p, and ln((1 - p e^eta) / (1 - p)),
        which is farther.
        """
        stated, hits, log_right, log_wrong = self._serious
        effort.spend(effort.CALL + effort.RATIO * len(stated))
        taken = stated > binomial.success(first)
        right = log_right[taken] + np.logaddexp(0.0, -last)
        wrong = log_wrong[taken] + np.logaddexp(0.0, first)
        if last > first:
            right = np.maximum(right, 0.0)
        cap = float(_cap(last, spent))
        most = _highest(last, cap)
        if most < 1:
            right = np.minimum(right, cap)
            wrong = np.maximum(wrong, math.log1p(-most) + float(np.logaddexp(0.0, last)))
        return np.asarray(np.where(hits[taken], right, wrong))

    @cached_property
    def _corners(self) -> tuple[Integers, Integers]:
        return _mixture.corners(self.hits)

    def _final_log_wealth(self, epsilons: Floats, spent: float) -> Floats:
        """For all claims at once: bets between p and the cap by their own confidence, those above by it."""
        assert self.confidences is not None
        effort.spend(10 * effort.RATIO * (len(self.hits) + len(epsilons)))
        # Bets in rising order of confidence: those at or below p are skipped, those from p e^eta on are
        # capped.
        order = np.argsort(self.confidences)
        stated, hits = self.confidences[order], self.hits[order]
        caps = _cap(epsilons, spent)
        most = _highest(epsilons, caps)
        taken_from = np.searchsorted(stated, binomial.success(epsilons), side="right")
        capped_from = np.maximum(taken_from, np.searchsorted(stated, most, side="left"))
        # p is at least 1/2, so no claim takes a bet below. Its logarithm, which may be infinite, is not used.
        safe = np.maximum(stated, 0.5)
        own = np.where(hits, np.log(safe), np.log1p(-safe))
        owns, rights = _suffix_sums(own), _suffix_sums(hits)
        right, capped_right = rights[taken_from], rights[capped_from]
        wrong, capped_wrong = len(hits) - taken_from - right, len(hits) - capped_from - capped_right
        claimed = -right * np.logaddexp(0.0, -epsilons) - wrong * np.logaddexp(0.0, epsilons)
        # Without a cap no bet is beyond it, and any number with finite logarithms will do.
        most = np.where(most < 1, most, 0.5)
        capped = capped_right * np.log(most) + capped_wrong * np.log1p(-most)
        return np.asarray(owns[taken_from] - owns[capped_from] + capped - claimed)


def _cap(epsilon: Numbers, spent: float) -> Any:
    """Eta, the largest gain of a hit, from n delta and epsilon alone."""
    largest = np.logaddexp(0.0, -np.asarray(epsilon, dtype=np.float64))
    return largest if spent == 0 else np.minimum(largest, _GAIN / spent)


def _highest(epsilon: Numbers, cap: Numbers) -> Any:
    """The confidence that a bet is capped at; 1 if none is."""
    claim = np.asarray(epsilon, dtype=np.float64)
    free = cap >= np.logaddexp(0.0, -claim)
    return np.where(free, 1.0, np.minimum(np.exp(cap) * binomial.success(claim), _BELOW_ONE))


def _from_wealth(wealth: Numbers, cap: Numbers, spent: float) -> Any:
    """The beta with ln(1 / beta) + eta n delta / beta = L, rounded up; Wright's function solves it.

    It rises with n delta, so that one too small for the logarithm is rounded up.
    """
    wealth = np.clip(wealth, 0.0, _LARGEST_WEALTH)
    if spent == 0:
        found = np.exp(-wealth)
    else:
        cost = np.maximum(cap * spent, binomial.NEGLIGIBLE)
        found = cost / special.wrightomega(wealth + np.log(cost))
    return np.minimum(1.0, np.maximum(found, binomial.SMALLEST_TAIL) * binomial.ROUND_UP)


def _suffix_sums(values: npt.NDArray[Any]) -> Floats:
    return np.append(np.cumsum(values[::-1], dtype=np.float64)[::-1], 0.0)
