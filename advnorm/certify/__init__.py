"""Certificates: bounds on what a model can say inside a threat, one rule a layer type."""

from advnorm.certify import (
    interval_activations,
    interval_functions,
    interval_linear,
    interval_norms,
)
from advnorm.certify.box import Box, around
from advnorm.certify.graph import Graph, Node, Ref, trace, walk
from advnorm.certify.interval import Bounded, bounded, boxes

__all__ = [
    "Bounded",
    "Box",
    "Graph",
    "Node",
    "Ref",
    "around",
    "bounded",
    "boxes",
    "interval_activations",
    "interval_functions",
    "interval_linear",
    "interval_norms",
    "trace",
    "walk",
]
