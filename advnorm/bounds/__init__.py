"""Certificates: bounds on the logits of a model inside a threat.

:func:`certify` proves which images keep their label. A model is traced to a graph, and
bounds go through it operation by operation.
"""

from advnorm.bounds.box import Box, input_box
from advnorm.bounds.crown import (
    crown_ibp_and_ibp_margins,
    crown_ibp_margins,
    crown_margins,
)
from advnorm.bounds.graph import Graph, Node, Ref, walk
from advnorm.bounds.interval import Margins, ibp_margins, interval_bounds
from advnorm.bounds.methods import METHODS, margin_bounds
from advnorm.bounds.tracing import cached_trace, trace
from advnorm.bounds.verdicts import Certificates, certify, is_certified, is_proof

__all__ = [
    "METHODS",
    "Box",
    "Certificates",
    "Graph",
    "Margins",
    "Node",
    "Ref",
    "cached_trace",
    "certify",
    "crown_ibp_and_ibp_margins",
    "crown_ibp_margins",
    "crown_margins",
    "ibp_margins",
    "input_box",
    "interval_bounds",
    "is_certified",
    "is_proof",
    "margin_bounds",
    "trace",
    "walk",
]
