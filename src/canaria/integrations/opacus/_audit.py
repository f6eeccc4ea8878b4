"""An audit attached to training with Opacus: canaries in, noisy sums out, step by step."""

from typing import Any, Final

import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.claims import Claim
from canaria.evidence.bound import Bound
from canaria.integrations.opacus._accumulator import Accumulator
from canaria.integrations.opacus._checks import (
    require_counted,
    require_fitting,
    require_fresh,
    require_poisson,
    require_private,
)
from canaria.integrations.opacus._injections import MAKERS, Injection
from canaria.integrations.opacus._internals import (
    GRADIENT,
    before_noise,
    before_update,
    divisor,
    is_distributed,
    processes,
)
from canaria.results.conformance import Conformance
from canaria.results.result import Result
from canaria.training import accumulator
from canaria.training.canaries import INJECTIONS, Dense, Design, Dirac, design_of, hidden_bits
from canaria.training.recording import Recording

_ATTACH: Final = 0x61747461
_VERSION: Final = 1


class Audit:
    """An audit that runs along with training; ask it for a bound when training is done.

    Made by `attach`. Nothing it shows during training depends on the hidden bits.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        data_loader: DPDataLoader,
        design: Design,
        injection: str,
        seed: int,
        noise_multiplier: float | None,
    ) -> None:
        self.optimizer, self._loader, self._design, self.injection = optimizer, data_loader, design, injection
        self._stated = noise_multiplier
        self.sample_rate = float(data_loader.batch_sampler.sample_rate)
        self._real: Tensor | float | None = None
        self._undo = (before_noise(optimizer, self._before_noise), before_update(optimizer, self._read))
        optimizer.canaria_audit = self
        self._build(seed)

    def _build(self, seed: int) -> None:
        """Everything that follows from the seed: bits, places, draws."""
        self.seed = seed
        self._bits = hidden_bits(self._design.count, seed)
        self._injection: Injection = MAKERS[self.injection](
            self.optimizer, self._loader, self._design, self._bits, seed
        )
        specified = accumulator.Accumulator.of(
            self._design,
            self._bits,
            self._injection.places.layers,
            sample_rate=self.sample_rate,
            noise_multiplier=self._noise(),
        )
        self._accumulator = Accumulator(specified, self.optimizer.params[0].device)

    def _noise(self) -> float:
        """The noise multiplier that is stated for this step: the accountant, too, is told the optimizer's."""
        return float(self.optimizer.noise_multiplier if self._stated is None else self._stated)

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier that is stated, its root mean square over the steps."""
        return (self._accumulator.noise_square / self.steps) ** 0.5 if self.steps else self._noise()

    def _before_noise(self) -> None:
        if self._injection.places.accumulated():
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        self._injection.places.require_trained()
        self._real = self._injection.real_part()

    def _read(self) -> None:
        """Read the gradient as the model will get it, after noise, scaling and reduction."""
        optimizer, real = self.optimizer, self._real
        if real is None:
            raise InputError(
                "a step was made past the audit: the private optimizer's add_noise was replaced after "
                "attaching, or the original optimizer was stepped itself"
            )
        self._real = None
        if processes(optimizer) > 1 and isinstance(real, Tensor):
            torch.distributed.all_reduce(real)
        self._injection.places.read(GRADIENT, self._accumulator.next_row())
        clip = float(optimizer.max_grad_norm)
        self._accumulator.add(real, scale=divisor(optimizer), clip_norm=clip, stated=self._noise())

    @property
    def steps(self) -> int:
        """How many steps were seen."""
        return self._accumulator.steps

    def recording(self) -> Recording:
        """What was seen so far, on the CPU and free of torch."""
        totals = self._accumulator.totals()
        return Recording(
            design=self._design,
            bits=self._bits.copy(),
            sums=totals.sums,
            table=accumulator.table_of(totals.table) if isinstance(self._design, Dirac) else None,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            injection=self.injection,
            seed=self.seed,
            layers=self._injection.places.layers,
            parameters=len(self.optimizer.params),
            pairs=self._accumulator.pairs(totals),
            noise_changes=self._accumulator.noise_changes,
        )

    def bound(self, delta: float = 0.0, confidence: float = 0.95, **how: Any) -> Bound:
        """The lower bound on epsilon that training proves so far; see `Recording.bound`."""
        return self.recording().bound(delta, confidence, **how)

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        **how: Any,
    ) -> Result:
        """Bound, claim and conformance in one text; a claim needs its `delta`. See `Recording.report`."""
        return self.recording().report(claimed, delta, confidence, **how)

    def conformance(
        self,
        *,
        steps: int | None = None,
        sample_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> Conformance:
        """Whether the sums are what correct training would show; see `canaria.conformance`."""
        return self.recording().conformance(
            steps=steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier
        )

    def detach(self) -> None:
        """Leave the optimizer as it was; what was seen stays."""
        self._injection.release()
        for undo in self._undo:
            undo()
        del self.optimizer.canaria_audit

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs. It holds the seed of the hidden bits."""
        return {
            "version": _VERSION,
            "seed": self.seed,
            **self._settings(),
            **self._accumulator.state_dict(),
            "draws": self._injection.draws_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: same bits, same canaries, same draws."""
        version = state.get("version") if isinstance(state, dict) else None
        if version != _VERSION:
            raise InputError(f"the audit's state must have version {_VERSION}, got {shown(version)}")
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise InputError(
                    f"the audit's state has {name} = {shown(state.get(name))}, but this audit {value!r}"
                )
        require_counted(self.optimizer, int(state["steps"]))
        self._injection.release()
        self._build(int(state["seed"]))
        self._accumulator.load_state_dict(state)
        self._injection.restore_draws(state["draws"])

    def _settings(self) -> dict[str, Any]:
        return {"design": repr(self._design), "injection": self.injection, "sample_rate": self.sample_rate}


def attach(
    optimizer: DPOptimizer,
    data_loader: DPDataLoader,
    *,
    injection: str,
    canaries: int | Dense | Dirac,
    per_coordinate: int = 1,
    rng: Seed = None,
    noise_multiplier: float | None = None,
    state: dict[str, Any] | None = None,
) -> Audit:
    """Attach an audit to the optimizer and data loader that `PrivacyEngine.make_private` returned.

    Args:
        optimizer: The private optimizer.
        data_loader: The private data loader, which draws batches by Poisson sampling.
        injection: How canaries are injected. "rows": canary rows in the data set, made by `with_canary_rows`,
            whose gradient is replaced. "sum": added to the clipped sum by a Poisson draw of our own; the data
            set is left alone, and ghost clipping works. "head": an embedding of its own, made by
            `with_canary_head`.
        canaries: A number of Dirac canaries, or a design such as `Dense`.
        per_coordinate: How many Dirac canaries share a weight.
        rng: A seed for the hidden bits and the places of the canaries.
        noise_multiplier: What training states, if that is not what the optimizer holds.
        state: The `state_dict()` of an interrupted audit to go on from.

    Returns:
        The audit, to be asked for a bound or a report when training is done.

    Raises:
        InputError: If training cannot be audited as it is; the message says what to change.

    Example:
        ```python
        model, optimizer, loader = engine.make_private(...)
        audit = attach(optimizer, loader, injection="sum", canaries=1000)
        ...  # train as always
        print(audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
        ```

    """
    if injection not in INJECTIONS:
        raise InputError(f"injection must be 'rows', 'sum' or 'head', got {shown(injection)}")
    design = design_of(canaries, per_coordinate)
    require_private(optimizer)
    require_poisson(data_loader)
    if state is None:
        require_fresh(optimizer)
    require_fitting(optimizer, data_loader, design, injection)
    stated = None if noise_multiplier is None else checks.nonnegative("noise_multiplier", noise_multiplier)
    seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
    audit = Audit(optimizer, data_loader, design, injection, _agreed(optimizer, seed), stated)
    if state is not None:
        try:
            audit.load_state_dict(state)
        except InputError:
            audit.detach()
            raise
    return audit


def _agreed(optimizer: DPOptimizer, seed: int) -> int:
    """All ranks audit with the seed of the first."""
    if not is_distributed(optimizer):
        return seed
    shared = torch.tensor([seed], dtype=torch.int64, device=optimizer.params[0].device)
    torch.distributed.broadcast(shared, 0)
    return int(shared.item())
