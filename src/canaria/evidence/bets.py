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
from canaria.evidence import _mixture, _text, base
from canaria.evidence.base import Evidence, Inversion, Progress, Tally

_ROUND_DOWN: Final = 1e-9
"""Subtracted from log-wealth: the error of one logarithm of a beta function (proofs, Rounding 1)."""
_AT_ONCE: Final = 20_000
"""Corners times claims that are computed in one array."""
_GAIN: Final = 0.1
"""The largest eta n delta. At a level of 0.05 it costs two nats of wealth, whatever n."""
_HIGHEST: Final = 1 - 1e-15
"""The highest confidence that a cap allows: one of 1 would make every miss cost the whole wealth."""
_LARGEST_WEALTH: Final = 600.0
"""The largest logarithm of the wealth: beyond it, a p-value would be below `SMALLEST_TAIL`."""


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

    At beta = 0.05 this costs at most two nats more than delta = 0, whatever n. Wealth is not monotone in
    epsilon, so bounds are found on a fixed grid.

    Args:
        confidences: The stated confidence of each guess, at least 0 and below 1; None for the mixture over
            all confidences.
        hits: Whether each guess was right (booleans, 0/1 or -1/+1), in the order of guessing.
        elements: The number of hidden bits of the audit; by default one per hit.

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
        base.FAIR_COINS,
        base.ALL_COUNTED,
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
                    "after a bet with confidence 1, one wrong guess would lose everything"
                )
        checks.assign(self, confidences=stated, hits=seen, elements=checks.elements(elements, len(seen)))

    @property
    def method(self) -> str:
        """The name of the method: "mixture bets" if no confidences are stated, else "bets"."""
        return "mixture bets" if self.confidences is None else "bets"

    @classmethod
    def read(cls, confidences: object, hits: object, elements: int) -> "Bets":  # type: ignore[override]
        stated = _text.numbers_from_json("confidences", confidences)
        return cls(stated, _text.hits_from_text(hits), elements)

    def effort(self, delta: float) -> Effort:
        """One pass over the bets for each stretch of claims; for the mixture, one over all guesses."""
        passed = effort.CALL + effort.RATIO * len(self.hits)
        if self.confidences is None:
            return Effort(10 * passed, 20 * passed)
        return Effort(passed, 40 * passed)

    def tally(self, claim: Claim) -> Tally:
        """The guesses that were bet on against this claim."""
        taken = self._taken(claim.point(self.charged).epsilon)
        return Tally(int((self.hits & taken).sum()), int(taken.sum()))

    def fixed(self) -> str:
        return "each guess and its stake before its own bit; bits revealed earlier were known"

    def progress(self, claim: Claim) -> Progress:
        """The guesses that were bet on, in the order of guessing."""
        taken = self._taken(claim.point(self.charged).epsilon)
        return base.progress_of(self.hits[taken] if taken.any() else self.hits)

    def wealth(self, epsilon: float) -> Floats:
        """The wealth after each guess, against a claim at delta = 0."""
        with np.errstate(over="ignore"):
            return np.exp(self._log_wealth(checks.nonnegative("epsilon", epsilon)))

    def p_value(self, claim: Claim) -> float:
        """The level at which the largest wealth ever reached is significant, whatever delta adds to it."""
        point = claim.point(self.charged)
        epsilon, spent = point.epsilon, self.elements * point.delta
        cap = _cap(epsilon, spent)
        if self.confidences is None:
            wealth = _mixture.log_mixture(*self._corners, epsilon, _highest(epsilon, cap))
            return self._p_value_of(wealth, _mixture.most_lost(len(self.hits)), cap, spent)
        return self._p_value_of(np.cumsum(self._gains(epsilon, epsilon, spent)), 0.0, cap, spent)

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Refute claims by the final wealth, then whole stretches of claims at once.

        The p-value needs the largest wealth along the path, which is a pass over all bets for each claim. Two
        cheaper bounds refute most claims of the grid. Both replace L of Theorem 10 by a smaller number. P
        falls with L, so every claim that they refute is refuted by P:

        1. The wealth after the last bet is at most the largest. Sums over all bets that a claim takes are
           differences of suffix sums by confidence, so all claims together cost one sort. The two are close
           if the guesser does well to the end.
        2. The least that each bet gains against any claim of a stretch (Theorem 11 (d)): one pass over the
           bets settles the whole stretch.
        """
        spent = self.elements * delta
        if self.confidences is None:
            return self._screen_mixture(epsilons, spent, level)
        final = self._final_log_wealth(epsilons, spent)
        # Suffix sums cancel: their error grows with what was summed, not with what is left.
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
            # Refuted with both errors against it, kept with both in its favour; what is between stays open.
            rounding = _ROUND_DOWN + len(self.hits) * 2.0**-52 * np.maximum(
                best, _mixture.most_lost(len(self.hits))
            )
            least, most = (_from_wealth(best - less, cap, spent) for less in (0.0, 2 * rounding))
            verdict[some] = -(least > level * binomial.ROUND_UP).astype(np.int8)
            verdict[some][most <= level] = 1
            # The initial run of refuted claims ends here, so no later claim is asked for.
            if (verdict[some] < 0).any():
                break
        return verdict

    def _settle_stretches(
        self, verdict: npt.NDArray[np.int8], epsilons: Floats, spent: float, level: float
    ) -> None:
        """Mark claims as refuted, from the first open one, in stretches that double while they are refuted.

        A stretch that is not refuted as a whole is halved and tried again. If a stretch of one claim is not
        refuted, it and all later claims stay open, and `p_value` decides about the first of them.
        """
        done, width = 0, 1
        while width > 0 and done < len(epsilons):
            if verdict[done] == 1:
                done += 1
                continue
            last = min(done + width, len(epsilons)) - 1
            first = float(epsilons[done])
            # P rises with eta, which falls with epsilon, so the cap is that of the first claim.
            wealth = np.cumsum(self._gains(first, float(epsilons[last]), spent))
            refuted = self._p_value_of(wealth, 0.0, _cap(first, spent), spent, margins=2) <= level
            if refuted:
                verdict[done : last + 1] = 1
            width = 2 * width if refuted else width // 2

    def _p_value_of(self, wealth: Floats, lost: float, cap: Numbers, spent: float, margins: int = 1) -> float:
        """The p-value for a path of the log-wealth, or for its corners, less the rounding error."""
        # A sum of m terms has an error of at most m units in the last place of its largest partial sum.
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
        certain = np.full(guesses, math.nextafter(1, 0))
        return Bets(certain, np.ones(guesses, bool), base.elements_for(self, guesses))

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
            # A hit below p(last) gains nothing against that claim, as the bet is skipped; it loses nothing.
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
        """The log-wealth after the last bet, for all claims at once.

        Bets between p and the cap count with their own confidence, those above with the cap.
        """
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
    # ln(1 / p) = ln(1 + e^-epsilon): with such a cap every confidence below 1 is allowed.
    free = cap >= np.logaddexp(0.0, -claim)
    return np.where(free, 1.0, np.minimum(np.exp(cap) * binomial.success(claim), _HIGHEST))


def _from_wealth(wealth: Numbers, cap: Numbers, spent: float) -> Any:
    """The beta with ln(1 / beta) + eta n delta / beta = L, rounded up.

    With c = eta n delta and omega = c / beta this is omega + ln omega = L + ln c, which Wright's function
    solves. Beta rises with c, so a c that is too small for the logarithm is rounded up.
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
