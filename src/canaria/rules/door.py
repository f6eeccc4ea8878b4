"""The one place where every rule is played; a rule never sees the order of the list.

A list is often sorted by the hidden bits (members first, as in most files). The bits are still fair coins,
but a rule that breaks ties, bets or stops by position would read them off the list. So the elements of a
round are put in random order before a rule sees their scores, and the bits that it gets afterwards are in the
same random order. Given the bits and the output, the order that the rule sees is then uniform, so it is one
of the guesser's own coins (Theorem 22).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.evidence import Counts, Evidence
from canaria.rules._guesses import Guesses, Rule
from canaria.rules.adaptive import AdaptiveRule, ChoosingRule
from canaria.rules.online import OnlineRounds

Losses = Callable[[Any, Bits], Floats]
"""`(outputs, known) -> scores`, each with a leading axis of trials."""
Guessed = tuple[Guesses | None, Evidence]
_Part = tuple[Integers, Bits, Floats]


def guess_once(rule: Rule, scores: Floats, bits: Bits, rng: np.random.Generator) -> Guessed:
    """Let a rule commit to guesses from the scores alone, then reveal the bits.

    The guesses use the numbering of the list; they are None if a user's rule does not show them.
    """
    order = rng.permutation(len(scores))
    # `commitment` is made before any line below it touches the bits.
    commitment = rule(scores[order], rng)
    hidden = bits[order]
    if isinstance(commitment, OnlineRounds):
        learnt, bets = commitment.play(hidden)
        return _relabelled(learnt, order), bets
    if not hasattr(commitment, "reveal"):
        raise InputError(f"rule must commit to guesses, with reveal(bits), got {shown(commitment)}")
    guesses: Guesses | None = getattr(commitment, "guesses", None)
    evidence = commitment.reveal(hidden)
    _require_all_counted(evidence, len(bits))
    _require_one_sign(evidence, guesses)
    return None if guesses is None else _relabelled(guesses, order), evidence


def guess_in_rounds(
    rule: AdaptiveRule,
    losses: Losses,
    outputs: object,
    bits: Bits,
    rounds: tuple[Integers, ...],
    rng: np.random.Generator,
) -> list[Guessed]:
    """In every trial, guess a round, reveal it, and continue with the next.

    All trials go through the rounds together, so that the losses of a round are computed for all at once.
    """
    trials = range(len(bits))
    known = np.zeros_like(bits)
    taken = np.zeros(len(bits), dtype=np.int64)
    seen: list[list[_Part]] = [[] for _ in trials]
    for elements in rounds:
        scores = losses(outputs, _read_only(known))
        for trial in trials:
            # The rule gets the losses of this round alone: a score may be known of later elements, a bit not.
            part = _decided(rule, rng.permutation(elements), scores[trial], int(taken[trial]))
            seen[trial].append(part)
            taken[trial] += len(part[0])
        known[:, elements] = bits[:, elements]
    return [_weighed(rule, seen[trial], bits[trial]) for trial in trials]


def guess_by_choice(
    rule: ChoosingRule, losses: Losses, output: object, bits: Bits, rng: np.random.Generator
) -> Guessed:
    """Let the rule choose what to guess next, reveal it, and continue until it chooses nothing."""
    known = np.zeros((1, len(bits)), dtype=np.int8)
    parts: list[_Part] = []
    taken = 0
    while True:
        scores = losses(output, _read_only(known))[0]
        hidden = rng.permutation(np.flatnonzero(known[0] == 0))
        elements = _chosen(rule, hidden, scores[hidden]) if len(hidden) else hidden
        if len(elements) == 0:
            return _weighed(rule, parts, bits)
        parts.append(_decided(rule, elements, scores, taken))
        taken += len(parts[-1][0])
        known[0, elements] = bits[elements]


def _chosen(rule: ChoosingRule, hidden: Integers, scores: Floats) -> Integers:
    """The elements that the rule chooses, each at most once: a bit guessed twice would count twice."""
    chosen = hidden[rule.choose(scores)]
    if len(np.unique(chosen)) < len(chosen):
        raise InputError(f"choose must return different positions, got {shown(chosen)} from {shown(rule)}")
    return chosen


def _decided(rule: AdaptiveRule, elements: Integers, scores: Floats, taken: int) -> _Part:
    """The elements that the rule guesses in a round, its guesses, and the scores they are based on."""
    signs = rule.decide(scores[elements], taken)
    guessed = np.flatnonzero(signs)
    return elements[guessed], signs[guessed], scores[elements[guessed]]


def _weighed(rule: AdaptiveRule, parts: list[_Part], bits: Bits) -> Guessed:
    if not parts:
        return None, Counts(0, 0, len(bits))
    order, signs, losses = (np.concatenate(column) for column in zip(*parts, strict=True))
    guesses = Guesses(order, signs)
    evidence = rule.weigh(guesses.hits(bits), losses, len(bits))
    _require_all_counted(evidence, len(bits))
    _require_one_sign(evidence, guesses)
    return guesses, evidence


def _require_all_counted(evidence: Evidence, total: int) -> None:
    """Delta is charged for every hidden bit, so a user's rule must count the elements that it left out.

    A larger number would be valid, but the result would contradict its own scores.
    """
    if not isinstance(evidence, Evidence):
        raise InputError(f"a rule must turn hits into evidence, such as Counts, got {shown(evidence)}")
    for part in getattr(evidence, "parts", (evidence,)):
        if part is not evidence:
            _require_all_counted(part, total)
        elif part.elements != total:
            raise InputError(
                f"evidence must count all {total} hidden bits of the audit, guessed or not, and no more "
                f"(elements={total}), got {shown(evidence)}"
            )


def _require_one_sign(evidence: Evidence, guesses: Guesses | None) -> None:
    """Evidence of one sign is charged for half of the elements, so guesses of both signs are refused."""
    if evidence.one_sided and guesses is not None and len(np.unique(guesses.signs[guesses.signs != 0])) > 1:
        raise InputError(
            "one_sided evidence comes from guesses of one sign, fixed in advance; these have both, got "
            f"{shown(evidence)}"
        )


def _relabelled(guesses: Guesses, order: Integers) -> Guesses:
    return Guesses(order[guesses.order], guesses.signs)


def _read_only(known: Bits) -> Bits:
    view = known.view()
    view.flags.writeable = False
    return view
