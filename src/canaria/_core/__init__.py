"""The lowest layer: errors, extras, checks, random streams, coins, binomial numerics, rounding, files.

It does not depend on audits, and imports nothing else from canaria.
"""
