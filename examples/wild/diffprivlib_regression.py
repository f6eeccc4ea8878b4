"""diffprivlib's LinearRegression takes the sensitivity of squares from the lower bound alone."""

import numpy as np
from diffprivlib.models import LinearRegression

from canaria import check_release

rows = np.random.default_rng(0).uniform(0, 1, (200, 3))


def fit(data: np.ndarray, rng: np.random.Generator) -> LinearRegression:
    seed = int(rng.integers(2**31))
    model = LinearRegression(
        epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1), fit_intercept=False, random_state=seed
    )
    return model.fit(data[:, :2], data[:, 2])


result = check_release(fit, rows, epsilon=1.0, rng=0)
