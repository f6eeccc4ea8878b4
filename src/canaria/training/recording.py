"""The record of an audited training run, in any framework, and the bound that follows from it.

The canaries are unit gradients (times the clip norm) that canaria makes. A hidden fair coin decides for each
whether it is included; an excluded one contributes a zero gradient. The record holds what the noisy sums of
all steps show about the canaries. The guesser sees the bits only as the game allows.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.claims import Claim, DpSgd, GaussianDP
from canaria.claims.families import DpSgdFamily, Family, parse_family
from canaria.mechanisms.dpsgd import SCORES, SubsampledGaussian
from canaria.mechanisms.interference import Interference
from canaria.training.canaries.designs import Dense, Design, Dirac
from canaria.training.canaries.sampling import Sampling, Schedule
from canaria.training.canaries.witnesses import Roles, Seen
from canaria.training.conformance.accounts import Account
from canaria.training.conformance.draws import Drawn
from canaria.training.conformance.sums import Rounding
from canaria.training.findings import Findings
from canaria.training.likelihood.accumulator import LEAST_NOISE
from canaria.training.recorded import Recorded

NO_STEP: Final = "no training step was seen; train between attaching the audit and asking for it"
UNITS: Final = ("row", "user", "client")
"""Units of privacy that a canary may represent: all of the unit is included, or nothing."""
_DENSE_ROUNDS: Final = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording(Recorded):
    """One audited training run: the hidden bits, and what the noisy sums show about the canaries.

    A bound holds whether or not the stated sampling rate and noise multiplier are true.

    Attributes:
        design: The canaries, `Dirac` or `Dense`.
        bits: The hidden bits, -1 or +1.
        sums: The sum of all steps at the coordinates of the canaries, in units of the clip norm, after
            subtracting the clipped gradients of the real rows.
        table: For Dirac canaries, L(m) for m = 0 ... `design.most`; None for dense ones.
        steps: The number of recorded steps.
        sample_rate: The stated sampling rate, per batch.
        sampling: The stated sampling.
        noise_multiplier: The stated noise multiplier. If it changes, the root mean square over the steps.
        injection: How the canaries were injected: "rows", "sum", "head", "gradients", "clients" or "clipped
            clients".
        seed: The seed of the audit.
        layers: The number of coordinates in each parameter that carries canaries; only for the conformance
            test.
        parameters: The names of the parameters that are trained; empty if not known.
        witnessed: The observations at witnesses, for the conformance test. None if there are no witnesses.
        roles: The tests that each witness is used for.
        drawn: A summary of the sampler's draws, for the conformance test. None if they were not seen.
        about_draws: The process whose sampler was seen, if several processes train together.
        by_the_optimizer: Whether the sums are those that the optimizer used, or those of the privatizer.
        noise_changes: Whether the stated noise multiplier changes from step to step.
        findings: What is known of the run without statistics.
        account: The actual noise multiplier and sampling rate of each step; None if they are always the two
            above.
        ended: The reason why the record stops early; empty if all of the training was seen.
        excuse: The reason why conformance cannot be tested; empty if it can.
        real_rows: The number of real rows, if canaries are rows beside them; else 0.
        unit: The unit of privacy that a canary represents: "row", "user" or "client".
        rows: The number of rows of a user, each clipped and drawn separately.
        canary_norm: The norm of a canary in clip norms, at most 1. It is the unit of `sums` and `table`.
        rounding: The effect of coarse rounding on the sums, for the conformance test. None if they are
            precise.

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
    findings: Findings = field(default_factory=Findings)
    account: Account | None = None
    ended: str = ""
    excuse: str = ""
    sampling: Schedule = field(default_factory=Sampling)
    real_rows: int = 0
    unit: str = "row"
    rows: int = 1
    canary_norm: float = 1.0
    rounding: Rounding | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(self.ended or NO_STEP)
        checks.require_converged(self.sums)
        if (seen := self.witnessed) is not None and self.noise_multiplier > 0:
            checks.require_converged(seen.by_step, seen.by_place, seen.totals, seen.released)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Differences between training and what was stated that are certain."""
        return self.findings.contradictions

    def losses(self, known: Bits, score: str = "likelihood") -> Floats:
        """The score of each canary, given the revealed bits, for which it is 0; higher means included.

        Args:
            known: The revealed bits, -1 or +1, and 0 where hidden.
            score: "likelihood" or "sum". Dense canaries have only one score, so it is ignored for them.
        """
        if score not in SCORES:
            raise InputError(f"score must be 'likelihood' or 'sum', got {shown(score)}")
        if isinstance(self.design, Dense):
            return self._interference(known)
        mechanism = SubsampledGaussian(
            dimension=self.design.coordinates,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_of_scores,
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
            noise_multiplier=self.noise_of_scores,
        )

    @property
    def noise_of_scores(self) -> float:
        """The noise in norms of a canary, and at least 0.001, so that scores stay finite without noise."""
        return max(self.noise_multiplier / self.canary_norm, LEAST_NOISE)

    def recording(self) -> "Recording":
        """The recording itself. Audits define this too."""
        return self

    def included_by_coordinate(self) -> Integers:
        """The number of included canaries on each coordinate."""
        width = self.design.coordinates
        counts = np.bincount(np.arange(len(self.bits)) % width, weights=self.bits > 0, minlength=width)
        return counts.astype(np.int64)

    def rounds(self) -> tuple[Integers, ...]:
        """The rounds of the adaptive game. For Dirac canaries, a round has one canary per coordinate."""
        count = len(self.bits)
        size = self.design.coordinates if isinstance(self.design, Dirac) else -(-count // _DENSE_ROUNDS)
        return tuple(np.arange(start, min(start + size, count)) for start in range(0, count, size))

    def family(self, named: Family | str | None = "dpsgd") -> Family | None:
        """A family of claims, given by name; "dpsgd" is DP-SGD with the steps and the rate of this run."""
        if named == DpSgdFamily.name or isinstance(named, DpSgdFamily):
            if not self.sampling.is_poisson:
                raise InputError(f"the family dpsgd is for Poisson sampling, not for {self.sampling.words}")
            if self.rows > 1:
                raise InputError(f"the family dpsgd is for single rows, not for users of {self.rows}")
        if named == DpSgdFamily.name:
            return DpSgdFamily(self.steps, self.sample_rate)
        return parse_family(named) if isinstance(named, str) else named

    @property
    def own_family(self) -> Family | None:
        """The family of claims that covers this kind of training; None if there is none."""
        return self.sampling.family(self.steps, self.sample_rate) if self.rows == 1 else None

    def promise_of(self, noise_multiplier: float) -> Claim:
        """The claim that this noise multiplier implies, in the family that covers this kind of training."""
        if isinstance(self.own_family, DpSgdFamily):
            return DpSgd(noise_multiplier=noise_multiplier, sample_rate=self.sample_rate, steps=self.steps)
        return GaussianDP(1 / noise_multiplier)
