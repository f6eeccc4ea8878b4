"""Audit federated training with Flower: wrap the strategy that adds the noise, train, compute a bound.

strategy = audited(strategy, canaries=500)
strategy.start(grid=grid, initial_arrays=arrays, num_rounds=50)
print(strategy.report(claimed=8.0, delta=1e-5))
"""

from canaria._core.extras import needed_for

with needed_for("an audit of federated training", "flower"):
    from canaria.integrations.flower._audit import Audit, audited

__all__ = ["Audit", "audited"]
