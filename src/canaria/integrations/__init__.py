"""Audits attached to training frameworks; each module imports its own framework, and nothing else does."""
