"""NVFlare's SVTPrivacy passes a weight that is a scalar on as it is."""

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from canaria import check_release

updates = np.random.default_rng(0).normal(0, 0.01, (20, 50))  # of 20 clients


def fit(data: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    mean = data.sum(axis=0) / 20
    update = DXO(DataKind.WEIGHT_DIFF, data={"layer": mean[1:], "temperature": mean[0]})
    return SVTPrivacy(epsilon=1.0).process_dxo(update, Shareable(), FLContext()).data


result = check_release(fit, updates, epsilon=1.0, rng=0)
