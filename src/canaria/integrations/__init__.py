"""Audits attached to training frameworks: Opacus, Lightning, Hugging Face, JAX Privacy, Flower.

Each module imports its own framework, and no other room imports any. It injects canaries, reads the noisy
sums, and leaves a `canaria.training.Recording`; what that proves is decided in `canaria.training`.
"""
