"""Tests whether training does what was stated: sums, noise, draws, processes and accounts."""
