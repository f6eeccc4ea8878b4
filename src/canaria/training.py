"""What a training audit leaves behind, whatever framework trained: from the record to the bound.

The canaries are unit gradients of our own (times the clip norm). A hidden fair coin decides for each
whether it is included; an excluded one contributes a zero gradient. The record holds what the noisy sums
of all steps say about them; the bits are revealed to the guesser only as the game allows.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from canaria import _validate
from canaria._validate import Bits, Floats, InputError, Integers, shown
from canaria.bound import Bound
from canaria.conforming import FEWEST, Conformance, Pairs, of_dense, of_dirac
from canaria.game import Transcript, replay
from canaria.mechanisms.dpsgd import SCORES, DpSgd
from canaria.mechanisms.interference import Interference, unit_rows
from canaria.rules import AdaptiveRule, Rule

ABOUT: Final = "the release of every noisy gradient sum to someone who knows the other rows"
NOT_TESTED: Final = "not tested (no noise is stated, or few coordinates carry canaries)"
_BITS: Final = 0x62697473
_LARGEST_DENSE: Final = 8000
_DENSE_ROUNDS: Final = 64

WAYS: Final = {
    "rows": (
        "the sampler, the clipper (canary rows have norm 10 C before it), the noise, scaling and reduction",
        "the computation of per-sample gradients (those of canary rows are replaced)",
    ),
    "sum": (
        "the noise, scaling and reduction",
        "the sampler, per-sample gradients and the clipper (canaries join the clipped sum by our own draw)",
    ),
    "head": (
        "the sampler, per-sample gradients, the clipper, the noise, scaling and reduction",
        "per-sample gradients of the audited model's own layers (canaries have an embedding of their own)",
    ),
}
"""What each way of adding canaries exercises, and what it does not."""


@dataclass(frozen=True)
class Dirac:
    """`count` canaries, each the unit vector of one coordinate, `per_coordinate` to each."""

    count: int
    per_coordinate: int = 1

    def __post_init__(self) -> None:
        _validate.integer("canaries", self.count, 1)
        _validate.integer("per_coordinate", self.per_coordinate, 1, self.count, "canaries")

    @property
    def coordinates(self) -> int:
        """How many coordinates carry canaries; canary i sits on coordinate i modulo this."""
        return -(-self.count // self.per_coordinate)

    @property
    def most(self) -> int:
        """The most canaries on one coordinate: `per_coordinate`, or fewer where they spread more evenly."""
        return -(-self.count // self.coordinates)


@dataclass(frozen=True)
class Dense:
    """`count` random canaries of norm 1 over the same `coordinates`: signs, equally large everywhere.

    They interfere with each other, less so the more coordinates there are. `seed` draws the signs.
    """

    count: int
    coordinates: int
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.integer("canaries", self.count, 1, _LARGEST_DENSE)
        _validate.integer("coordinates", self.coordinates, 1)
        _validate.integer("seed", self.seed, 0)

    def gradients(self) -> Floats:
        """The canaries, (count, coordinates)."""
        return unit_rows(self.count, self.coordinates, np.random.default_rng(self.seed))


Design = Dirac | Dense


def design_of(canaries: Any, per_coordinate: int) -> Design:
    """A number of Dirac canaries, or a design as it is."""
    if isinstance(canaries, Dirac | Dense):
        if per_coordinate != 1:
            raise InputError("per_coordinate goes with a number of canaries; a design holds its own")
        return canaries
    return Dirac(_validate.integer("canaries", canaries, 1), per_coordinate)


def hidden_bits(count: int, seed: int) -> Bits:
    """The coins of the canaries, from a stream of their own."""
    rng = _validate.generator(seed, _BITS)
    return 2 * rng.integers(0, 2, count, dtype=np.int8) - np.int8(1)


@dataclass(frozen=True, eq=False)
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
    way: str
    seed: int
    layers: tuple[int, ...] = ()
    pairs: Pairs | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError("no training step was seen; train between attaching the audit and asking for it")
        if not np.isfinite(self.sums).all():
            raise InputError("the noisy sums are not finite: training diverged, there is nothing to audit")

    def losses(self, known: Bits, score: str = "likelihood") -> Floats:
        """How much the record speaks for each canary, given the bits in `known` (0 where hidden)."""
        if score not in SCORES:
            raise InputError(f"score must be 'likelihood' or 'sum', got {shown(score)}")
        if isinstance(self.design, Dense):
            return self._interference(known)
        mechanism = DpSgd(self.design.coordinates, self.steps, self.sample_rate, self._sigma, score)
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
            sigma=self._sigma,
        )

    @property
    def _sigma(self) -> float:
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
        rng: Any = None,
    ) -> Transcript:
        """Play the game on the record: guess the bits, one run or adaptively."""
        return replay(
            self.bits,
            self.sums,
            lambda _, known: self.losses(known, score),
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
        rng: Any = None,
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
            _validate.integer("steps", self.steps if steps is None else steps, 1),
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
    ) -> "TrainingReport":
        """The bound, the claim and the conformance in one text.

        `delta` is that of the claim; without it the bound is at delta 0, and a claim is not compared.
        """
        if claimed is not None:
            _validate.nonnegative("claimed", claimed)
        bound = self.bound(delta or 0.0, confidence, rule=rule, score=score, adaptive=adaptive)
        lawful = self.noise_multiplier > 0 and self.design.coordinates >= FEWEST
        found = self.conformance() if lawful else None
        refuted = None if claimed is None or delta is None else bound.refutes(claimed)
        return TrainingReport(bound, claimed, refuted, found, self.way, self.design, self.steps)


@dataclass(frozen=True)
class TrainingReport:
    """What one audited training run shows; prints as text."""

    bound: Bound
    claimed: float | None
    refuted: bool | None
    conformance: Conformance | None
    way: str
    design: Design
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data for JSON."""
        return {
            **self.bound.to_dict(),
            "claimed": self.claimed,
            "refuted": self.refuted,
            "way": self.way,
            "design": {"kind": type(self.design).__name__, **asdict(self.design)},
            "steps": self.steps,
            "conformance": None if self.conformance is None else self.conformance.to_dict(),
        }

    def __str__(self) -> str:
        """For people."""
        exercised, untouched = WAYS[self.way]
        verdict = "no claim was given"
        if self.claimed is not None:
            answer = {True: "REFUTED", False: "not refuted", None: "not compared (its delta was not given)"}
            verdict = f"the claim epsilon = {self.claimed:.4g} is {answer[self.refuted]}"
        lines = [
            f"Audit of one training run: {self.design}, {self.steps} steps, way {self.way!r}",
            f"  bound        epsilon >= {self.bound.epsilon_text} at delta {self.bound.delta:g}, "
            f"{100 * self.bound.confidence:.10g} % confidence; {verdict}",
            f"  evidence     {self.bound.tally.correct} of {self.bound.tally.taken} guesses right among "
            f"{self.bound.evidence.elements} canaries; {self.bound.method}",
            f"  conformance  {self.conformance or NOT_TESTED}",
            f"  about        {ABOUT}; {self.bound.adjacency} adjacency",
            f"  exercised    {exercised}",
            f"  untouched    {untouched}",
            *(f"  assumes      {line}" for line in self.bound.assumptions),
        ]
        return "\n".join(lines)
