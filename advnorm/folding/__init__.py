"""Fast passes for searches: a model with fixed statistics, folded, with the same logits."""

from advnorm.folding.fast_path import LogitsFn, SearchPrecision, fast_logits

__all__ = ["LogitsFn", "SearchPrecision", "fast_logits"]
