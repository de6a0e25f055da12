"""What a search passes in place of a model that hides its gradients: BPDA and EOT."""

from advnorm.surrogates.expectation import drawn_logits, expected_logits, seeded
from advnorm.surrogates.registry import SURROGATES, Surrogate
from advnorm.surrogates.slots import LayerKey, Slot, find_slots, substituted

__all__ = [
    "SURROGATES",
    "LayerKey",
    "Slot",
    "Surrogate",
    "drawn_logits",
    "expected_logits",
    "find_slots",
    "seeded",
    "substituted",
]
