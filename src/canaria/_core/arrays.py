"""Types of arrays, named by their content."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Hits = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.int8]
Integers = npt.NDArray[np.int64]
Numbers = float | npt.NDArray[np.float64] | npt.NDArray[np.int64]
"""A number or an array, for functions that work element by element."""
