"""NVFlare's PercentilePrivacy drops small weights and cuts the others. It adds no noise."""

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

from canaria import check_release

updates = np.random.default_rng(0).normal(0, 0.01, (20, 50))  # of 20 clients


def fit(data: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    mean = DXO(DataKind.WEIGHT_DIFF, data={"layer": data.sum(axis=0) / 20})
    return PercentilePrivacy().process_dxo(mean, Shareable(), FLContext()).data


result = check_release(fit, updates, epsilon=1.0, rng=0)
