"""The laboratory: figures of the paper, and the validity of every auditor, on one core or a cluster.

Research code. It plays with every other room, and no other room but the command line knows it.
"""
