"""The lowest layer: errors, extras, checks, random streams, coins, binomial numerics, rounding, files.

It knows nothing about audits, and imports nothing else from canaria.
"""
