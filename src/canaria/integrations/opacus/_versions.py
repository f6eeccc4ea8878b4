"""Classes that Opacus 1.5 does not have, or has under another name."""

from typing import TYPE_CHECKING

__all__ = ["FSDPOptimizerFastGradientClipping", "GhostClipper"]

if TYPE_CHECKING:
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
        GradSampleHooksFastGradientClipping as GhostClipper,
    )
    from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping
else:
    from opacus.grad_sample import grad_sample_module_fast_gradient_clipping as ghost

    try:
        from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping

        GhostClipper = ghost.GradSampleHooksFastGradientClipping
    except ImportError:
        # The wrapped model clips, and there is no FSDP: no optimizer is an instance of no class.
        FSDPOptimizerFastGradientClipping, GhostClipper = (), ghost.GradSampleModuleFastGradientClipping
