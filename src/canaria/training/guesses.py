"""The game on a recorded training run: guesses of its hidden bits, and the bound that they give."""

from typing import TYPE_CHECKING, Final

from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound
from canaria.claims.families import Family
from canaria.game.guesser import batched
from canaria.game.replay import replay_own
from canaria.game.transcript import Transcript
from canaria.rules import AdaptiveRule, Matched, Rule

if TYPE_CHECKING:
    from canaria.training.recording import Recording

_ABOUT: Final = "the release of every noisy {summed} to someone who knows the other {unit}s"


def transcript_of(
    run: "Recording",
    rule: Rule | AdaptiveRule | None = None,
    *,
    score: str = "likelihood",
    adaptive: bool = False,
    rng: Seed = None,
) -> Transcript:
    """Guess the bits, in one run or adaptively; see `Recorded.transcript`."""
    summed = "sum of updates" if run.unit == "client" else "gradient sum"
    return replay_own(
        run.bits,
        run.sums,
        batched(lambda _, known: run.losses(known, score)),
        rule,
        run.rounds() if adaptive else None,
        run.seed if rng is None else rng,
        adjacency="add-remove",
        about=_ABOUT.format(summed=summed, unit=run.unit),
    )


def bound_of(
    run: "Recording",
    delta: float = 0.0,
    confidence: float = 0.95,
    *,
    rule: Rule | AdaptiveRule | None = None,
    score: str = "likelihood",
    adaptive: bool = False,
    rng: Seed = None,
    family: Family | str | None = None,
) -> Bound:
    """The lower bound on epsilon that the run proves; see `Recorded.bound`."""
    tested = run.family(family)
    if rule is None and tested is not None:
        rule = Matched(tested, confidence)
    game = transcript_of(run, rule, score=score, adaptive=adaptive, rng=rng)
    return game.bound(delta, confidence, family=tested)
