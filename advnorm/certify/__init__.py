"""Certificates: bounds on what a model can say inside a threat, one rule a layer type."""

from advnorm.certify.graph import Graph, Node, Ref, trace, walk

__all__ = ["Graph", "Node", "Ref", "trace", "walk"]
