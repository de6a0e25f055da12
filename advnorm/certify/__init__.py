"""Certificates: bounds on what a model can say inside a threat, one rule a layer type."""

from advnorm.certify import (
    interval_activations,
    interval_functions,
    interval_linear,
    interval_norms,
)
from advnorm.certify.bounds import METHODS, bounds
from advnorm.certify.box import Box, around
from advnorm.certify.crown import crown, crown_ibp, crown_ibp_and_ibp
from advnorm.certify.graph import Graph, Node, Ref, walk
from advnorm.certify.interval import Bounded, bounded, boxes
from advnorm.certify.memory import remembered
from advnorm.certify.tracing import trace
from advnorm.certify.verdicts import Certificates, certified, verify

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
