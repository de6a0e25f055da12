"""Certificates: bounds on what a model can say inside a threat, one rule a layer type."""

from advnorm.bounds import (
    interval_activations,
    interval_functions,
    interval_linear,
    interval_norms,
)
from advnorm.bounds.box import Box, around
from advnorm.bounds.crown import crown, crown_ibp, crown_ibp_and_ibp
from advnorm.bounds.graph import Graph, Node, Ref, walk
from advnorm.bounds.graph_cache import remembered
from advnorm.bounds.interval import Bounded, bounded, boxes
from advnorm.bounds.methods import METHODS, bounds
from advnorm.bounds.tracing import trace
from advnorm.bounds.verdicts import Certificates, certified, verify

__all__ = [
    "METHODS",
    "Bounded",
    "Box",
    "Certificates",
    "Graph",
    "Node",
    "Ref",
    "around",
    "bounded",
    "bounds",
    "boxes",
    "certified",
    "crown",
    "crown_ibp",
    "crown_ibp_and_ibp",
    "interval_activations",
    "interval_functions",
    "interval_linear",
    "interval_norms",
    "remembered",
    "trace",
    "verify",
    "walk",
]
