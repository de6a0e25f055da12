"""What the smaller models share: clean training by SGD, without momentum and norm."""

from advnorm.recipe import (
    EvaluationSpec,
    NormSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Recipe,
    ValidationSpec,
)

PLAIN_SGD = Recipe(
    norm=NormSpec(name="none"),
    objective=ObjectiveSpec(name="standard"),
    optimizer=OptimizerSpec(name="sgd", momentum=0),
    validation=ValidationSpec(samples=10, steps=1),
    evaluation=EvaluationSpec(weights="last"),
)
"""The last weights are evaluated, so validation is as cheap as it can be."""
