"""dpmm takes the categories of a column from the private data unless they are given, and stores them.

With `fixed`, they are given.
"""

import sys

import numpy as np
import pandas as pd
from dpmm.pipelines import MSTPipeline

from canaria import check_release

towns = np.random.default_rng(0).choice(["Bern", "Genf", "Thun"], 200)
rows = pd.DataFrame({"town": towns})
domain = {"town": {"categories": ["Bern", "Genf", "Thun"]}} if "fixed" in sys.argv else None


def fit(data: pd.DataFrame, rng: np.random.Generator) -> MSTPipeline:
    model = MSTPipeline(epsilon=1.0, delta=1e-5, gen_kwargs={"n_iters": 100})
    model.fit(data, domain, random_state=int(rng.integers(2**31)))
    return model


result = check_release(fit, rows, epsilon=1.0, delta=1e-5, rng=0)
