"""The laboratory: figures of the paper, and the validity of every auditor, on one core or a cluster.

Research code. It uses every other package; only the command line uses it.
"""
