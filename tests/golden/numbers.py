"""The numbers of a golden case, computed from its inputs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from canaria import audit_scores, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, to_dict
from canaria.game import replay
from canaria.rules import Soft, Tails, parse_rule
from canaria.training.canaries.designs import Dense, Dirac
from canaria.training.recording import Recording

FOLDER = Path(__file__).parent
Case = Mapping[str, Any]


def of_evidence(case: Case) -> dict[str, Any]:
    """The bound, and the p-values of some claims."""
    evidence, delta = Evidence.from_dict(case["evidence"]), case["delta"]
    return {
        "bound": lower_bound(evidence, delta, case["confidence"]).epsilon,
        "p_values": [evidence.p_value(ApproximateDP(claim, delta)) for claim in case["claims"]],
    }


def of_scores(case: Case) -> dict[str, Any]:
    """The bound of a rule, and the evidence that it made."""
    bits, scores = np.array([int(bit) for bit in case["bits"]]), np.array(case["scores"])
    rule = parse_rule(case["rule"])
    if case["rounds"] is None:
        bound = audit_scores(scores, bits, case["delta"], case["confidence"], rule, case["seed"])
    else:
        rounds = np.array_split(np.arange(len(bits)), case["rounds"])
        played = replay(bits, scores, lambda output, known: output, rule, rounds, case["seed"])
        bound = played.bound(case["delta"], case["confidence"])
    return {"bound": bound.epsilon, "tally": list(bound.tally), "evidence": to_dict(bound.evidence)}


def of_recording(case: Case) -> dict[str, Any]:
    """Bounds of a training by several rules, and its conformance."""
    recording = read(case["recording"])
    asked: dict[str, dict[str, Any]] = {
        "ranked": {},
        "ranked, sum": {"score": "sum"},
        "soft": {"rule": Soft()},
        "tails": {"rule": Tails(20)},
        "adaptive": {"adaptive": True},
    }
    found = {
        f"{name}, delta {delta:g}": recording.bound(delta, **how).epsilon
        for name, how in asked.items()
        for delta in (0.0, 1e-5)
    }
    conformance = recording.conformance()
    return {**found, "conformance": conformance.p_value, **conformance.parts}


def read(data: Mapping[str, Any]) -> Recording:
    """A recording from plain data."""
    kind, fields = data["design"]
    return Recording(
        design={"Dirac": Dirac, "Dense": Dense}[kind](**fields),
        bits=np.array(data["bits"], dtype=np.int8),
        sums=np.array(data["sums"]),
        table=None if data["table"] is None else np.array(data["table"]),
        steps=data["steps"],
        sample_rate=data["sample_rate"],
        noise_multiplier=data["noise_multiplier"],
        injection=data["injection"],
        seed=data["seed"],
        layers=tuple(data["layers"]),
    )


FOUND: dict[str, Callable[[Case], dict[str, Any]]] = {
    "evidence": of_evidence,
    "rules": of_scores,
    "trainings": of_recording,
}
