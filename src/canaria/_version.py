"""The version, alone, so that `canaria --version` imports nothing else."""

__version__ = "0.1.0"
