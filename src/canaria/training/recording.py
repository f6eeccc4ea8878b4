"""The record of an audited training run, in any framework, and the bound that follows from it.

The canaries are unit gradients (times the clip norm) that canaria makes. A hidden fair coin decides for each
whether it is included; an excluded one contributes a zero gradient. The record holds what the noisy sums of
all steps show about the canaries; the bits are revealed to the guesser only as the game allows.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, delta_of
from canaria.bounds.conformance import EXTRA, LEAKS, LEVEL, OPEN, SAFE, Cause, Conformance, Part
from canaria.bounds.parts import Histogram, Ladder
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim, DpSgd, GaussianDP
from canaria.claims.families import DpSgdFamily, Family, parse_family
from canaria.game.guesser import batched
from canaria.game.ladders import ladder_of_dpsgd
from canaria.game.replay import replay_own
from canaria.game.transcript import Transcript
from canaria.mechanisms.dpsgd import SCORES, SubsampledGaussian
from canaria.mechanisms.interference import Interference
from canaria.rules import AdaptiveRule, Matched, Rule
from canaria.training.canaries.designs import TESTS, Dense, Design, Dirac, derived
from canaria.training.canaries.sampling import Sampling
from canaria.training.canaries.witnesses import Roles, Seen
from canaria.training.conformance.accounts import Account
from canaria.training.conformance.claimed import DELTA, false_claims
from canaria.training.conformance.coincidences import coincidences
from canaria.training.conformance.draws import Drawn, part_of
from canaria.training.conformance.facts import facts_of, tested_topics
from canaria.training.conformance.noise import parts_of, untested
from canaria.training.conformance.rungs import rungs_of, squares_of
from canaria.training.conformance.sums import FEWEST, Rounding, enough_draws, of_dense, of_dirac
from canaria.training.likelihood.accumulator import LEAST_NOISE

ABOUT: Final = "the release of every noisy {summed} to someone who knows the other {unit}s"
UNITS: Final = ("row", "user", "client")
"""What a canary stands for: that which is included or not."""
_DENSE_ROUNDS: Final = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """One audited training run: the hidden bits, and what the noisy sums show about the canaries.

    A bound holds whether or not the stated sampling rate and noise multiplier are true.

    Attributes:
        design: The canaries, `Dirac` or `Dense`.
        bits: The hidden bits, -1 or +1.
        sums: The sum of all steps at the coordinates of the canaries, in units of the clip norm, after
            subtracting the clipped gradients of the real rows.
        table: For Dirac canaries, L(m) for m = 0 ... `design.most`; None for dense ones.
        steps: The number of recorded steps.
        sample_rate: The stated sampling rate, of a batch.
        sampling: How rows are stated to take part.
        noise_multiplier: The stated noise multiplier; where it changes, its root mean square over the steps.
        injection: How the canaries were injected: "rows", "sum", "head", "clients" or "clipped clients".
        seed: The seed of the audit.
        layers: The number of coordinates in each parameter that carries canaries; only for the conformance
            test.
        parameters: The names of the parameters that are trained; empty if not known.
        witnessed: What witnesses showed; only for the conformance test. None if there were none.
        roles: What each witness is for.
        drawn: What the sampler drew; only for the conformance test. None if that was not seen.
        about_draws: Whose sampler that is, if several processes train together.
        by_the_optimizer: Whether the sums are what the optimizer used; else what the privatizer returned.
        noise_changes: Whether the stated noise multiplier changes from step to step.
        contradictions: What training did otherwise than was stated, for certain.
        remarks: What a reader must know besides, such as differences that are on the safe side.
        doubts: What may leak without limit or not, so that nothing follows from the measured noise alone.
        untested: Why the adapter could not test a topic, such as "weights"; empty if it did.
        account: Noise multiplier and sampling rate of every step, as they were made; None if they are those
            above throughout.
        ended: Why nothing more was seen; empty if training was seen to its end.
        excuse: Why conformance cannot be tested; empty if it can.
        real_rows: The number of real rows, if canaries are rows beside them; else 0.
        unit: What a canary stands for: "row", "user" or "client".
        rows: The number of rows of a user, each clipped and drawn by itself.
        canary_norm: The norm of a canary in clip norms, at most 1; `sums` and `table` are in units of it.
        rounding: What rounding of coarse numbers did to the sums; only for the conformance test. None if
            they are precise.

    Raises:
        InputError: If no training step was recorded.
        TrainingDivergedError: If the sums are not finite.

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import log_likelihoods_of
        >>> from canaria.training import Dirac, Recording
        >>> rng = np.random.default_rng(0)
        >>> bits = rng.choice([-1, 1], 500).astype(np.int8)
        >>> released = (bits > 0) + rng.normal(scale=2.0, size=(20, 500))  # 20 steps, canaries in each
        >>> run = Recording(
        ...     design=Dirac(500),
        ...     bits=bits,
        ...     sums=released.sum(axis=0),
        ...     table=log_likelihoods_of(released, 1, 1.0, 2.0),
        ...     steps=20,
        ...     sample_rate=1.0,
        ...     noise_multiplier=2.0,
        ...     injection="sum",
        ...     seed=0,
        ... )
        >>> run.bound(delta=1e-5).epsilon > 2.5
        True
        >>> print(run.conformance().conforms)
        True

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
    parameters: tuple[str, ...] = ()
    witnessed: Seen | None = None
    roles: Roles | None = None
    drawn: Drawn | None = None
    about_draws: str = ""
    by_the_optimizer: bool = True
    noise_changes: bool = False
    contradictions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    untested: dict[str, str] = field(default_factory=dict)
    account: Account | None = None
    ended: str = ""
    excuse: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    real_rows: int = 0
    unit: str = "row"
    rows: int = 1
    canary_norm: float = 1.0
    rounding: Rounding | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(
                self.ended or "no training step was seen; train between attaching the audit and asking for it"
            )
        checks.require_converged(self.sums)
        if (seen := self.witnessed) is not None and self.noise_multiplier > 0:
            checks.require_converged(seen.by_step, seen.by_place, seen.totals, seen.released)

    def losses(self, known: Bits, score: str = "likelihood") -> Floats:
        """The score of each canary, given the revealed bits; higher means included.

        Args:
            known: The revealed bits, -1 or +1, and 0 where hidden.
            score: "likelihood" or "sum"; dense canaries have only one score, whatever is given.

        Returns:
            One score per canary, 0 where the bit is revealed.

        Raises:
            InputError: If the score is unknown.

        """
        if score not in SCORES:
            raise InputError(f"score must be 'likelihood' or 'sum', got {shown(score)}")
        if isinstance(self.design, Dense):
            return self._interference(known)
        mechanism = SubsampledGaussian(
            dimension=self.design.coordinates,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self._noise_multiplier,
            score=score,
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
        """The noise in norms of a canary, but at least 0.001, so that scores stay finite without noise."""
        return max(self.noise_multiplier / self.canary_norm, LEAST_NOISE)

    def rounds(self) -> tuple[Integers, ...]:
        """The order of the adaptive game; for Dirac canaries a round has one canary of every coordinate."""
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
        """Play the game on the record: guess the bits, in one run or adaptively.

        Args:
            rule: How scores become guesses. By default `Ranked()`, or `Bet()` if `adaptive` is True.
            score: "likelihood" or "sum".
            adaptive: Whether the bits of a round are revealed after it.
            rng: A seed, a NumPy `SeedSequence` or a `Generator`; None uses the seed of the audit.

        Returns:
            The transcript of the game.

        Raises:
            InputError: If the score is unknown, or if the rule is not valid in an adaptive game.

        """
        return replay_own(
            self.bits,
            self.sums,
            batched(lambda _, known: self.losses(known, score)),
            rule,
            self.rounds() if adaptive else None,
            self.seed if rng is None else rng,
            adjacency="add-remove",
            about=ABOUT.format(
                summed="sum of updates" if self.unit == "client" else "gradient sum", unit=self.unit
            ),
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
        family: Family | str | None = None,
    ) -> Bound:
        """The lower bound on epsilon that the training run proves.

        Choose the rule, the score and `adaptive` before looking at any bound: the best of several is not a
        bound.

        Args:
            delta: The delta at which epsilon is bounded.
            confidence: The confidence of the bound, strictly between 0 and 1.
            rule: How scores become guesses. By default `Ranked()`, or `Bet()` if `adaptive` is True.
            score: "likelihood" or "sum".
            adaptive: Whether the bits of a round are revealed after it.
            rng: A seed, a NumPy `SeedSequence` or a `Generator`; None uses the seed of the audit.
            family: The family of claims to test, or its name; "dpsgd" is DP-SGD with the steps and the rate
                of this run. The rule is then `Matched(family, confidence)` by default.

        Returns:
            The bound, with its evidence.

        Raises:
            InputError: If an argument is not usable, or if the rule is not valid in an adaptive game.

        """
        tested = self.family(family)
        if rule is None and tested is not None:
            rule = Matched(tested, confidence)
        game = self.transcript(rule, score=score, adaptive=adaptive, rng=rng)
        return game.bound(delta, confidence, family=tested)

    def family(self, named: Family | str | None = "dpsgd") -> Family | None:
        """A family of claims by its name; "dpsgd" is DP-SGD with the steps and the rate of this run."""
        if named == DpSgdFamily.name or isinstance(named, DpSgdFamily):
            if not self.sampling.is_poisson:
                raise InputError(f"the family dpsgd is of Poisson sampling, not of {self.sampling.words}")
            if self.rows > 1:
                raise InputError(f"the family dpsgd is of single rows, not of users of {self.rows}")
        if named == DpSgdFamily.name:
            return DpSgdFamily(self.steps, self.sample_rate)
        return parse_family(named) if isinstance(named, str) else named

    @property
    def own_family(self) -> Family | None:
        """The claims that are about training of this kind; None if there are none."""
        return self.sampling.family(self.steps, self.sample_rate) if self.rows == 1 else None

    def promise_of(self, noise_multiplier: float) -> Claim:
        """What this noise promises, by the claims that are about training of this kind."""
        if isinstance(self.own_family, DpSgdFamily):
            return DpSgd(noise_multiplier=noise_multiplier, sample_rate=self.sample_rate, steps=self.steps)
        return GaussianDP(1 / noise_multiplier)

    def conformance(
        self,
        *,
        steps: int | None = None,
        sample_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> Conformance:
        """Test whether the sums follow the law of a correct DP-SGD.

        Given the bits, correct training makes the p-value of every part uniform (Theorem 26). The smallest,
        corrected for their number, is the p-value of the test. If the test fails, it is made once more with
        the noise that was measured, to say whether the size of the noise is the only cause.

        Args:
            steps: The number of steps to test; by default the recorded one.
            sample_rate: The sampling rate to test; by default the stated one.
            noise_multiplier: The noise multiplier to test; by default the stated one.

        Returns:
            The p-value and its parts, and the noise and the canary weight that the sums show.

        Raises:
            InputError: If a setting is out of range, or if fewer than 4 coordinates carry canaries.

        """
        if self.excuse:
            raise InputError(f"conformance is {self.excuse}")
        self.sampling.require_own(steps, sample_rate)
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        settings = (
            checks.integer("steps", self.steps if steps is None else steps, 1),
            self.sample_rate if sample_rate is None else sample_rate,
            noise / self.canary_norm,
        )
        found = self._tested(settings, noise)
        return found if found.conforms else self._explained(found, settings, noise)

    def _explained(
        self, found: Conformance, settings: tuple[int, float, float], stated: float
    ) -> Conformance:
        """Say whether all failures come from one cause: noise of another size than the stated one.

        If everything else conforms to the size that was measured, that size is the only cause. More noise
        than stated is not called safe: a raw row that is added in every step can look like noise.
        """
        # Witnesses test the size alone ("size"). Without them it shows in the rest of the sums ("noise").
        squares, part = squares_of(self), "size" if "size" in found.parts else "noise"
        ratio = math.sqrt(squares.total / squares.count) if squares.count else found.noise / stated
        if part not in found.failures or not ratio * stated > 0:
            return found
        again = self._tested((*settings[:2], settings[2] * ratio), stated * ratio)
        effect = LEAKS if ratio < 1 else EXTRA
        cause = Cause(text=f"noise multiplier {stated * ratio:.3g}, stated {stated:.3g}", effect=effect)
        explained = part if again.conforms else ""
        return replace(found, causes={**found.causes, part: cause}, explained_by=explained)

    def _tested(self, settings: tuple[int, float, float], noise: float) -> Conformance:
        """The test at these steps, rate and noise in norms of a canary; `noise` is in clip norms.

        Parts that need more than the sums come first: witnesses (Theorem 26 (d) to (h)), draws of the sampler
        (i), and when canaries took part (Theorem 35). `of_dirac` and `of_dense` add the parts of the sums,
        (a) and (b), and join all of them by (c).
        """
        included = self.bits > 0
        parts: dict[str, Part] = {}
        # Discrete p-values are made uniform by random numbers (g). They follow from the seed of the audit, so
        # that a recording gives the same p-values whenever it is read.
        rng = np.random.default_rng(derived(self.seed, TESTS))
        if self.witnessed is not None and self.roles is not None:
            # Witnesses are kept over the stated noise; squares over another one are larger by this factor.
            factor = (self.noise_multiplier / noise) ** 2 if noise > 0 else 1.0
            parts |= parts_of(self.witnessed, self.roles, rng, factor=factor, names=self.parameters)
        drawn = part_of(self.drawn, settings[1], rng, self.sampling) if self.drawn is not None else None
        if drawn is not None:
            parts["sampling"] = drawn
        timing = self.sampling.timing(self.table, included, noise, self.witnessed, rng)
        if timing is not None:
            parts["timing"] = timing
        if isinstance(self.design, Dense):
            return self._in_units(
                of_dense(
                    self.sums,
                    self.design.gradients(),
                    included,
                    *settings,
                    self.layers,
                    parts,
                    rounding=self.rounding,
                    names=self._carrying,
                ),
                noise,
                1.0,
            )
        width = self.design.coordinates
        counts = np.bincount(np.arange(len(included)) % width, weights=included, minlength=width)
        # The noise of the sum of T steps, over sqrt(T) times that of a step: 1 unless noise is correlated.
        unit = self.sampling.noise_of_sums(settings[0])
        found = of_dirac(
            self.sampling.levelled(self.sums, included, self.steps),
            self.rows * counts.astype(np.int64),
            *settings[:2],
            settings[2] * unit,
            self.layers,
            parts,
            sampling=self.sampling,
            rounding=self.rounding,
            names=self._carrying,
        )
        return self._in_units(self._of_rows(found), noise, unit)

    def _of_rows(self, found: Conformance) -> Conformance:
        """What the weight of canaries means where they are rows: too low a weight is not safe then.

        It shows that canaries are not treated as other rows are, and others may weigh more.
        """
        cause = found.causes.get("weight")  # there is none if all bits are alike
        if self.injection not in ("rows", "head") or cause is None or cause.effect != SAFE:
            return found
        return replace(found, causes={**found.causes, "weight": replace(cause, effect=OPEN)})

    @property
    def _carrying(self) -> tuple[str, ...]:
        """The names of `layers` if all parameters carry canaries; coordinates that span several come last."""
        names = (*self.parameters, "several parameters")
        known = len(self.layers) - len(self.parameters) in (0, 1)
        return names[: len(self.layers)] if known else ()

    def _in_units(self, found: Conformance, stated: float, unit: float) -> Conformance:
        """What was found in units of the sums, in noise multipliers."""
        return replace(found, noise=found.noise * self.canary_norm / unit, stated_noise=stated)

    def tested_at(self, noise_multiplier: float) -> Conformance | None:
        """The conformance test at this noise multiplier; None where it cannot be made."""
        if noise_multiplier <= 0 or self.design.coordinates < FEWEST or self.excuse:
            return None
        if isinstance(self.design, Dense) and not enough_draws(
            self.layers or (self.design.coordinates,),
            self.bits > 0,
            self.steps,
            self.sample_rate,
            max(noise_multiplier / self.canary_norm, LEAST_NOISE),
        ):
            return None
        return self.conformance(noise_multiplier=noise_multiplier)

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        *,
        rule: Rule | AdaptiveRule | None = None,
        score: str = "likelihood",
        adaptive: bool = False,
        adjacency: str = "unspecified",
        family: Family | str | None = None,
        rungs: bool = True,
        name: str = "training run",
    ) -> Result:
        """The bound, the claim and the conformance test: to be printed, saved, and made into a report.

        Args:
            claimed: The claimed epsilon, or a claim; None if there is none. With the family "dpsgd", and with
                "gaussian" for correlated noise and known steps, it is by default what the stated noise
                multiplier promises.
            delta: The delta of the claim, required with an epsilon or a curve; 0 without a claim.
            confidence: The confidence of the bound, strictly between 0 and 1.
            rule: How scores become guesses, as in `bound`.
            score: "likelihood" or "sum".
            adaptive: Whether the bits of a round are revealed after it.
            adjacency: The adjacency of the claim, to be checked against that of the audit.
            family: The family of claims to test, as in `bound`.
            rungs: Whether to show, beside the bound, what follows if more is assumed. That needs a delta, and
                some seconds for the first run with these steps and this rate.
            name: What was audited.

        Returns:
            The result.

        Raises:
            InputError: If an argument is not usable, or if a claim is given without its delta.

        """
        tested = self.family(family)
        claim = self._promised(claimed, delta, adjacency, tested)
        at = delta_of(claim, delta)
        bound = self.bound(at, confidence, rule=rule, score=score, adaptive=adaptive, family=tested)
        found = self.tested_at(self.noise_multiplier)
        return Result(
            bound,
            claim,
            name=name,
            histogram=Histogram.of(self.losses(np.zeros_like(self.bits), score), self.bits),
            ladder=self._ladder(claim, bound, plain=score == "likelihood" and not adaptive),
            rungs=rungs_of(self, bound, score) if rungs and at and self.own_family else (),
            conformance=found,
            facts=facts_of(self, tested=found is not None),
            contradictions=self.contradictions_with(claim, bound.delta),
            remarks=(*self.doubts, *self.remarks, *self._large(claim)),
            tested=tested_topics(self, claim, found),
            seed=self.seed,
        )

    def _large(self, claim: Claim | None) -> tuple[str, ...]:
        """A note if delta is 1/rows or more: that permits to publish a row as it is."""
        rows = 0 if self.drawn is None else self.drawn.rows
        if not isinstance(claim, ApproximateDP) or claim.delta * rows < 1:
            return ()
        return (f"δ = {claim.delta:g} is not below 1/{rows}: it permits to publish a row chosen at random",)

    def contradictions_with(self, claim: Claim | None, delta: float = DELTA) -> tuple[str, ...]:
        """What training did otherwise than was stated, for certain, and why the claim cannot hold of it."""
        return (*self.certain, *false_claims(self, claim, delta))

    @cached_property
    def certain(self) -> tuple[str, ...]:
        """What training did otherwise than was stated, for certain."""
        found = list(self.contradictions)
        noises = [] if self.account is None else [noise for noise, *_ in self.account.to_list()]
        if self.noise_multiplier > 0 and 0 in noises:
            found.append("the noise multiplier was 0 in a step, so ε is unbounded: add noise in every step")
        if self.witnessed is not None and (alike := coincidences(self.witnessed.firsts)):
            pairs = "1 pair of noise tensors begins"
            if alike > 1:
                pairs = f"{alike} pairs of noise tensors begin"
            why = "noise is used again, or its generator is seeded from few seeds"
            found.append(f"{pairs} with the same values: {why}")
        return tuple(found)

    @property
    def _is_dpsgd(self) -> bool:
        """Whether a canary takes part as a row does in what accountants call DP-SGD."""
        return self.sampling.is_poisson and self.rows == 1

    def not_tested(self, level: float = LEVEL) -> dict[str, str]:
        """What conformance does not see in this run, by topic.

        What is not listed is found with certainty: a step or a parameter without noise, and noise that two
        parameters share from their first weight on.

        Args:
            level: The false-alarm rate at which conformance is judged.

        Returns:
            A sentence for each topic; empty if there is none.

        """
        if self.witnessed is None or self.roles is None:
            return {"noise": "no weight without canaries shows the noise of single steps"}
        return untested(self.witnessed, self.roles, len(self.parameters), level)

    def _promised(
        self, claimed: float | Claim | None, delta: float | None, adjacency: str, family: Family | None
    ) -> Claim | None:
        """The claim: as it is given, by its epsilon, or what the stated noise promises."""
        if isinstance(claimed, DpSgd) and self.rows > 1:
            raise InputError(
                f"a claim of DP-SGD is about single rows, the bound about users of {self.rows}: give the ε "
                "and δ of users, which follow by group privacy"
            )
        if isinstance(claimed, Claim):
            return claimed
        if claimed is None:
            if family is None or family != self.own_family or self.noise_multiplier == 0:
                return None
            if self.noise_changes:
                raise InputError(
                    "the stated noise changes from step to step, so no claim of the family is what it "
                    "promises; give the claim"
                )
            return self.promise_of(self.noise_multiplier)
        if delta is None:
            raise InputError(f"delta of the claim epsilon = {claimed} must be given: it is part of the claim")
        epsilon = checks.nonnegative("claimed", claimed)
        return ApproximateDP(epsilon, delta, adjacency) if family is None else family.at(epsilon, delta)

    def _ladder(self, claim: Claim | None, bound: Bound, plain: bool) -> Ladder | None:
        """The ladder; gap by gap only for the guesser whose law is known (one run, by the likelihood)."""
        if claim is None:
            return None
        claimed = claim.least_epsilon_at(bound.delta)
        known = plain and self._is_dpsgd
        if isinstance(self.design, Dense) or not known or bound.family is not None:
            return Ladder.of_scores(claimed, bound.estimate, bound.epsilon)
        mechanism = SubsampledGaussian(
            dimension=self.design.coordinates,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self._noise_multiplier,
        )
        return ladder_of_dpsgd(mechanism, len(self.bits), claimed, bound)
