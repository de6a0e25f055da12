"""A recipe that trains within a second."""

from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    ObjectiveSpec,
    Recipe,
    ValidationSpec,
)

TINY = Recipe(
    name="tiny",
    data=DataSpec(train=60, test=20),
    model=ModelSpec(options={"depth": 1, "width": 4}),
    objective=ObjectiveSpec(name="standard"),
    epochs=1,
    batch_size=20,
    validation=ValidationSpec(samples=10, steps=1),
    evaluation=EvaluationSpec(
        conditions=("clean", "fgsm"), threat=EvaluationThreatSpec(eps=(0.1,))
    ),
)
