"""Speed and memory of the DP-SGD simulation. Run by `make bench-dpsgd`.

Times are of single runs on this machine; read the ratios, not the seconds.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.lab.figures._experiment import generator
from canaria.lab.figures.dpsgd import over_elements
from canaria.mechanisms import SubsampledGaussian, algorithm_3

MILLION = (
    "import numpy as np; from canaria.mechanisms import SubsampledGaussian; rng = np.random.default_rng(0); "
    "bits = 2 * rng.integers(0, 2, (1, 10**6), dtype=np.int8) - np.int8(1); "
    "m = SubsampledGaussian(dimension=10**6, steps=100, sample_rate=0.1, noise_multiplier=2.42); "
    "m.loss(m.sample(bits, rng), np.zeros_like(bits))"
)


def seconds(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def command(*words: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("canaria")), *words], check=True, capture_output=True)


def main() -> None:
    table = Table("work", "limit", "measured")
    sigma = dpsgd_noise_multiplier(2.0, 1e-5, 100, 0.1)
    point = seconds(lambda: over_elements(8.0, 200, generator(0, "elements", 0, 0)))
    table.add_row("one point of the n/d figure: 200 runs, n = 8000, with bounds", "1 s", f"{point:.2f} s")
    million = seconds(lambda: subprocess.run([sys.executable, "-c", MILLION], check=True))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    table.add_row("likelihood losses, d = 10^6, T = 100, s = 1", "30 s", f"{million:.1f} s")
    table.add_row("its peak memory", "4 GB", f"{peak:.2f} GiB")
    rng, n = np.random.default_rng(0), 1000
    bits = 2 * rng.integers(0, 2, (1, n), dtype=np.int8) - np.int8(1)
    gradients = np.zeros((n, n))
    gradients[np.arange(n), np.arange(n)] = bits[0] > 0
    naive = seconds(lambda: algorithm_3(gradients, 100, 0.1, sigma, rng))
    ours = min(
        seconds(
            lambda: SubsampledGaussian(
                dimension=n, steps=100, sample_rate=0.1, noise_multiplier=sigma
            ).sample(bits, rng)
        )
        for _ in range(3)
    )
    table.add_row("Algorithm 3 as written over ours, n = d = 1000", "", f"{naive / ours:.0f} times")
    with tempfile.TemporaryDirectory() as folder:
        quick = seconds(lambda: command("reproduce", "--quick", "--out", f"{folder}/quick"))
        table.add_row("canaria reproduce --quick", "10 s", f"{quick:.1f} s")
        full = seconds(lambda: command("reproduce", "--out", f"{folder}/full"))
        table.add_row("canaria reproduce (all figures, paper settings)", "120 s", f"{full:.0f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
