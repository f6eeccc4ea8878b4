"""smartnoise-synth clips a copy of the data to their ranges, and releases the covariance of the original."""

import sys
from importlib.metadata import files

import numpy as np
import pandas as pd

from canaria import check_release

# The package itself needs torch and a scikit-learn of 2020; this module of it needs neither.
(module,) = [one for one in files("smartnoise-synth") or [] if one.name == "dp_covariance.py"]
sys.path.append(str(module.locate().parent))
from dp_covariance import DPcovariance  # noqa: E402

rows = pd.DataFrame(np.random.default_rng(0).uniform(0, 1, (200, 2)), columns=["height", "weight"])


def fit(data: pd.DataFrame, rng: np.random.Generator) -> list[float]:
    ranges = pd.DataFrame({"height": [0.0, 1.0], "weight": [0.0, 1.0]})
    return DPcovariance(n=len(data), cols=["height", "weight"], rng=ranges, global_eps=1.0).release(data)


result = check_release(fit, rows, epsilon=1.0, adjacency="replace", rng=0)
