"""From noisy sums to the scores of canaries, with independent and with correlated noise."""
