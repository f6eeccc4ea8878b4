"""Examples and other scripts, as modules, and what they print."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str, folder: Path = EXAMPLES) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alike(*texts: str) -> bool:
    """Whether texts have the same words, and nearly the same fractions."""
    numbers = [re.findall(r"\d+\.\d+", text) for text in texts]
    words = [re.sub(r"[\d.]+| +", " ", text) for text in texts]
    return words[0] == words[1] and np.allclose(*(np.array(some, float) for some in numbers), atol=0.02)
