"""The ground floor: errors, checks, random streams, fair coins, binomial numerics, rounding and files.

It knows nothing of audits, and imports nothing else of canaria.
"""
