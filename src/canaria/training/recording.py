"""What a training audit leaves behind, whatever framework trained: from the record to the bound.

The canaries are unit gradients of our own (times the clip norm). A hidden fair coin decides for each
whether it is included; an excluded one contributes a zero gradient. The record holds what the noisy sums
of all steps say about them; the bits are revealed to the guesser only as the game allows.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, TrainingDivergedError, shown
from canaria._core.seeds import Seed
from canaria.claims import ApproximateDP
from canaria.evidence.bound import Bound
from canaria.game.play import Transcript, batched, replay_own
from canaria.mechanisms.dpsgd import SCORES, DpSgd
from canaria.mechanisms.interference import Interference
from canaria.results.conformance import Conformance
from canaria.results.ladders import ladder_of_dpsgd, ladder_of_scores
from canaria.results.parts import Histogram, Ladder
from canaria.results.result import Result
from canaria.rules import AdaptiveRule, Rule
from canaria.training.canaries import INJECTIONS, Dense, Design, Dirac
from canaria.training.conformance import FEWEST, Pairs, of_dense, of_dirac

ABOUT: Final = "the release of every noisy gradient sum to someone who knows the other rows"
NOT_TESTED: Final = "not tested (no noise is stated, or few coordinates carry canaries)"
_DENSE_ROUNDS: Final = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """One audited training run: hidden bits and what the noisy sums say.

    `sums` is the sum of all steps at the canaries' coordinates, in units of the clip norm, the real rows'
    clipped gradients subtracted. `table` holds L(m) for m = 0 ... `design.most` (theory, section 7) for
    Dirac canaries, None for dense ones. `sample_rate` and `noise_multiplier` are what training stated; a
    bound holds whether or not they are true. `layers` and `pairs` are for conformance alone.
    """

    design: Design
    bits: Bits
    sums: Floats
    table: Floats | None
    steps: int
    sample_rate: float
    noise_multiplier: float
    injection: str
    seed: int
    layers: tuple[int, ...] = ()
    pairs: Pairs | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError("no training step was seen; train between attaching the audit and asking for it")
        if not np.isfinite(self.sums).all():
            raise TrainingDivergedError(
                "the noisy sums are not finite: training diverged, there is nothing to audit"
            )

    def losses(self, known: Bits, score: str = "likelihood") -> Floats:
        """How much the record speaks for each canary, given the bits in `known` (0 where hidden)."""
        if score not in SCORES:
            raise InputError(f"score must be 'likelihood' or 'sum', got {shown(score)}")
        if isinstance(self.design, Dense):
            return self._interference(known)
        mechanism = DpSgd(
            self.design.coordinates, self.steps, self.sample_rate, self._noise_multiplier, score=score
        )
        output = self.table if score == "likelihood" else self.sums
        assert output is not None
        return np.asarray(mechanism.loss(output[None], known[None])[0])

    @cached_property
    def _interference(self) -> Interference:
        assert isinstance(self.design, Dense)
        return Interference(
            self.sums,
            self.design.gradients(),
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self._noise_multiplier,
        )

    @property
    def _noise_multiplier(self) -> float:
        """A positive noise multiplier: without noise scores assume little, to stay finite."""
        return max(self.noise_multiplier, 1e-3)

    def rounds(self) -> tuple[Integers, ...]:
        """The order of the adaptive game: for Dirac, one canary of every coordinate after the other."""
        count = len(self.bits)
        size = self.design.coordinates if isinstance(self.design, Dirac) else -(-count // _DENSE_ROUNDS)
        return tuple(np.arange(start, min(start + size, count)) for start in range(0, count, size))

    def transcript(
        self,
        rule: Rule | AdaptiveRule | None = None,
        *,
        score: str = "likelihood",
        adaptive: bool = False,
        rng: Seed = None,
    ) -> Transcript:
        """Play the game on the record: guess the bits, one run or adaptively."""
        return replay_own(
            self.bits,
            self.sums,
            batched(lambda _, known: self.losses(known, score)),
            rule,
            self.rounds() if adaptive else None,
            self.seed if rng is None else rng,
            adjacency="add-remove",
            about=ABOUT,
        )

    def bound(
        self,
        delta: float = 0.0,
        confidence: float = 0.95,
        *,
        rule: Rule | AdaptiveRule | None = None,
        score: str = "likelihood",
        adaptive: bool = False,
        rng: Seed = None,
    ) -> Bound:
        """The lower bound on epsilon that the training run proves.

        By default the guesses are ranked by their likelihood (`Ranked`); `adaptive=True` reveals bits as it
        goes and bets (`Bet`). Choose before you look: the best of several is not a bound.
        """
        return self.transcript(rule, score=score, adaptive=adaptive, rng=rng).bound(delta, confidence)

    def conformance(
        self,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
        steps: int | None = None,
    ) -> Conformance:
        """Whether the sums are what correct DP-SGD with these settings (by default as stated) shows."""
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        settings = (
            checks.integer("steps", self.steps if steps is None else steps, 1),
            self.sample_rate if sample_rate is None else sample_rate,
            noise,
        )
        included = self.bits > 0
        if isinstance(self.design, Dense):
            return of_dense(self.sums, self.design.gradients(), included, *settings, self.layers)
        width = self.design.coordinates
        counts = np.bincount(np.arange(len(included)) % width, weights=included, minlength=width)
        pairs = self.pairs
        if pairs is not None and noise > 0:
            pairs = Pairs(pairs.squares * (self.noise_multiplier / noise) ** 2, pairs.places)
        return of_dirac(self.sums, counts.astype(np.int64), *settings, self.layers, pairs)

    def report(
        self,
        claimed: float | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        *,
        rule: Rule | AdaptiveRule | None = None,
        score: str = "likelihood",
        adaptive: bool = False,
        adjacency: str = "unspecified",
        name: str = "training run",
    ) -> Result:
        """The bound, the claim and the conformance: to be printed, saved, and made into a report.

        `delta` is that of the claim: without it the bound is at delta 0, and a claim is refused. Give the
        `adjacency` of the claim to have it checked.
        """
        if claimed is not None and delta is None:
            raise InputError(f"delta of the claim epsilon = {claimed} must be given: it is part of the claim")
        claim = None
        if claimed is not None and delta is not None:
            claim = ApproximateDP(checks.nonnegative("claimed", claimed), delta, adjacency)
        bound = self.bound(delta or 0.0, confidence, rule=rule, score=score, adaptive=adaptive)
        lawful = self.noise_multiplier > 0 and self.design.coordinates >= FEWEST
        exercised, untouched = INJECTIONS[self.injection]
        return Result(
            bound,
            claim,
            name=name,
            histogram=Histogram.of(self.losses(np.zeros_like(self.bits), score), self.bits),
            ladder=self._ladder(claimed, bound, plain=score == "likelihood" and not adaptive),
            conformance=self.conformance() if lawful else None,
            facts={
                "canaries": f"{self.design.words}; injected by {self.injection!r}",
                "training": f"{self.steps} steps, sample rate {self.sample_rate:.6g}, "
                f"noise multiplier {self.noise_multiplier:.6g} (as stated)",
                "exercised": exercised,
                "untouched": untouched,
                **({} if lawful else {"conformance": NOT_TESTED}),
            },
            seed=self.seed,
        )

    def _ladder(self, claimed: float | None, bound: Bound, plain: bool) -> Ladder | None:
        """Gap by gap where the guesser is the one whose law is known: one run, by the likelihood."""
        if claimed is None:
            return None
        if isinstance(self.design, Dense) or not plain:
            return ladder_of_scores(claimed, bound)
        mechanism = DpSgd(self.design.coordinates, self.steps, self.sample_rate, self._noise_multiplier)
        return ladder_of_dpsgd(mechanism, len(self.bits), claimed, bound)
