"""Xie & Yuille (2020): intriguing properties of adversarial training."""

from advnorm.papers.xie2020 import (
    attack_steps,
    capacity,
    clean_share,
    mixture,
    pairing,
    running,
    whole,
)

__all__ = [
    "attack_steps",
    "capacity",
    "clean_share",
    "mixture",
    "pairing",
    "running",
    "whole",
]
