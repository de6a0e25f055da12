"""How far the training of a run was when a number was measured."""

from pydantic import ValidationError

from advnorm.records.base import Count, Record


class Training(Record):
    """How far a run was when its weights were read: the mark of an unfinished one.

    The best weights are older than that: of the epochs done, they are of the best one.

    >>> str(Training(epochs=13, planned=400)), Training(epochs=400, planned=400).mark
    ('13 of 400 epochs', '')
    >>> Training(epochs=0, steps=7, planned=400).mark
    ' (unfinished: 0 of 400 epochs and 7 steps)'
    """

    epochs: Count
    """Whole ones."""
    steps: Count = 0
    """Done of the epoch after these."""
    planned: Count

    @classmethod
    def read(cls, planned: object, epochs: object, steps: object = 0) -> "Training | None":
        """Return it from what files say; ``None`` if these are no such numbers."""
        try:
            return cls.model_validate(
                {"planned": planned, "epochs": epochs, "steps": steps}
            )
        except ValidationError:
            return None

    @property
    def finished(self) -> bool:
        """Whether all planned epochs are done."""
        return self.epochs >= self.planned

    @property
    def mark(self) -> str:
        """What is printed behind a number of an unfinished run; else nothing."""
        return "" if self.finished else f" (unfinished: {self})"

    def __str__(self) -> str:
        plural = "s" if self.steps > 1 else ""
        steps = f" and {self.steps} step{plural}" if self.steps else ""
        return f"{self.epochs} of {self.planned} epochs{steps}"


def mark_of(training: Training | None) -> str:
    """Return the mark of a record, which may not say how far training was."""
    return training.mark if training else ""
