"""Audit training with Opacus: a few lines in the script, and a bound at the end.

model, optimizer, loader = engine.make_private(...)
audit = attach(optimizer, loader, injection="sum", canaries=1000)
...  # train as always
print(audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
"""

from canaria._core.extras import needed_for

with needed_for("an audit of training with Opacus", "opacus"):
    from canaria.integrations.opacus._attach import attach
    from canaria.integrations.opacus._audit import Audit
    from canaria.integrations.opacus._auditing import auditing
    from canaria.integrations.opacus._head import CanaryHead, MarkedRows, with_canary_head
    from canaria.integrations.opacus._isolation import check_isolation
    from canaria.integrations.opacus._neighbours import check_neighbours
    from canaria.integrations.opacus._program_audit import ProgramAudit
    from canaria.integrations.opacus._rows import CanaryRows, with_canary_rows
    from canaria.training.canaries.designs import Dense, Dirac

__all__ = [
    "Audit",
    "CanaryHead",
    "CanaryRows",
    "Dense",
    "Dirac",
    "MarkedRows",
    "ProgramAudit",
    "attach",
    "auditing",
    "check_isolation",
    "check_neighbours",
    "with_canary_head",
    "with_canary_rows",
]
