"""Whether training is what was stated: tests of sums, noise, draws, processes and accounts."""
