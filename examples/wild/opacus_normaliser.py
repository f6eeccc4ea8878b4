"""Opacus divides the noisy sum by a batch size that it takes from the number of private rows.

With `fixed`, the batch size and the sampling rate are set to public numbers.
"""

import sys

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch import nn

from canaria import check_release

rows = np.random.default_rng(0).normal(size=(200, 2000))
accountant = RDPAccountant()
accountant.step(noise_multiplier=4.0, sample_rate=1.0)  # whatever the number of rows is
EPSILON = accountant.get_epsilon(delta=1e-5)


def fit(data: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """The weights after one step of DP-SGD."""
    held = torch.utils.data.TensorDataset(torch.as_tensor(data, dtype=torch.float32))
    model = nn.Linear(2000, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=torch.utils.data.DataLoader(held, batch_size=2),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
    )
    if "fixed" in sys.argv:
        optimizer.expected_batch_size, loader.batch_sampler.sample_rate = 2, 0.01
    batch = next(iter(loader))[0]
    model(batch).sum().backward()
    optimizer.step()
    return next(model.parameters()).detach()


result = check_release(fit, rows, epsilon=EPSILON, delta=1e-5, rng=0)
