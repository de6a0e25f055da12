"""Xie & Yuille (2020): intriguing properties of adversarial training."""

from advnorm.papers.xie2020 import clean_share, mixture, running

__all__ = ["clean_share", "mixture", "running"]
