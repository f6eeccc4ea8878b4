"""The outcome of a privacy test: a claim, the bound it was compared with, and whether the test passed."""

from dataclasses import KW_ONLY, dataclass

from canaria.bounds.bound import Bound
from canaria.bounds.conformance import Conformance
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim


@dataclass(frozen=True)
class Verdict:
    """A claim compared with an audit, and whether the test passed.

    For correct code `passed` is False with probability at most 1 - confidence of the bound, plus the level of
    the conformance test.
    """

    bound: Bound
    claim: Claim
    _: KW_ONLY
    conformance: Conformance | None = None
    contradictions: tuple[str, ...] = ()
    seed: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def promise(self) -> str:
        """The claim in words."""
        if isinstance(self.claim, ApproximateDP):
            return f"epsilon = {self.claim.epsilon:.6g} at delta {self.claim.delta:g}"
        return f"of {self.claim}"

    @property
    def refuted(self) -> bool:
        """Whether the bound lies above the claim."""
        return self.bound.refutes(self.claim)

    @property
    def conforms(self) -> bool:
        """Whether training conforms to what was stated, as far as that was tested."""
        return self.conformance is None or self.conformance.conforms or self.conformance.is_safe

    @property
    def passed(self) -> bool:
        """Whether the claim is not refuted, and training conforms and does not contradict itself."""
        return not self.refuted and self.conforms and not self.contradictions

    def result(self, name: str, command: str | None = None) -> Result:
        """The result, for `canaria verify` and `canaria report`."""
        facts = {"notes": "; ".join(self.notes)} if self.notes else {}
        return Result(
            self.bound,
            self.claim,
            name=name,
            conformance=self.conformance,
            contradictions=self.contradictions,
            facts=facts,
            seed=self.seed,
            command=command,
        )

    def __str__(self) -> str:
        """The sentence of the bound, and the outcome of the conformance test if there was one."""
        answer = "REFUTED" if self.refuted else "not refuted"
        lines = [f"the claim {self.promise} is {answer}. {self.bound.explanation}"]
        if (found := self.conformance) is not None:
            if not (found.conforms and self.contradictions):
                lines.append(f"{found.answer}, where less than {found.level:.2g} is a failure")
            lines.append(
                f"noise multiplier {found.noise:.3g} (stated {found.stated_noise:.3g}), canary weight "
                f"{found.weight:.2f} (expected 1)"
            )
        lines = [*(f"training was NOT what was stated: {one}" for one in self.contradictions), *lines]
        return "\n".join([*lines, *self.notes])
