"""Adversarial training, attacks and diagnostics under any normalization."""

__version__ = "0.1.0"
