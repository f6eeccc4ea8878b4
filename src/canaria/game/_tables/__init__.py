"""Readers of score files: text, JSON, NumPy's files and Parquet. Each returns two columns."""
