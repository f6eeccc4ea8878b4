"""The lowest layer: errors, extras, checks, random streams, fair coins, binomial numerics, rounding and files.

It does not depend on audits, and imports nothing else from canaria.
"""
