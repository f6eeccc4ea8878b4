"""Arrays by what they hold."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Hits = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.int8]
Integers = npt.NDArray[np.int64]
