"""Audit training with JAX Privacy: wrap the privatizer, train, compute a bound from its last state.

privatizer = gaussian_privatizer(stddev=2.4 * clip_norm)
stated = {"clip_norm": clip_norm, "noise_multiplier": 2.4, "sample_rate": 0.1, "steps": 100}
audit = attach(privatizer, params, canaries=1000, **stated)
noise_state = audit.privatizer.init(params)
...  # every step: noisy, noise_state = audit.privatizer.update(sum_of_clipped_grads, noise_state)
print(audit.report(noise_state, claimed=2.0, delta=1e-5))
"""

from canaria._core.extras import needed_for

with needed_for("an audit of training with JAX Privacy", "jax"):
    from canaria.integrations.jax_privacy._attach import attach
    from canaria.integrations.jax_privacy._audit import Audit, AuditState
    from canaria.integrations.jax_privacy._head import CanaryHead
    from canaria.integrations.jax_privacy._isolation import check_isolation
    from canaria.integrations.jax_privacy._plan import attach_plan
    from canaria.training.canaries.designs import Dense, Dirac

__all__ = ["Audit", "AuditState", "CanaryHead", "Dense", "Dirac", "attach", "attach_plan", "check_isolation"]
