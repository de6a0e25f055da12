"""How far the training of a run was when a number was measured."""

from typing import Self

from pydantic import ValidationError

from advnorm.records.base import Count, Record


class TrainingProgress(Record):
    """How many of the planned epochs a run had done when its weights were read.

    The best weights may be older: they are those of the best epoch so far.

    >>> str(TrainingProgress(epochs=13, planned=400))
    '13 of 400 epochs'
    >>> TrainingProgress(epochs=400, planned=400).mark
    ''
    >>> TrainingProgress(epochs=0, steps=7, planned=400).mark
    ' (unfinished: 0 of 400 epochs and 7 steps)'
    """

    epochs: Count
    """Completed epochs."""
    steps: Count = 0
    """Completed steps of the next epoch."""
    planned: Count
    """Epochs of the whole training."""

    @classmethod
    def read(cls, planned: object, epochs: object, steps: object = 0) -> Self | None:
        """Return it from values of a file; ``None`` if they are not such numbers."""
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
        """What is printed after a number of an unfinished run; else empty."""
        return "" if self.finished else f" (unfinished: {self})"

    def __str__(self) -> str:
        plural = "s" if self.steps > 1 else ""
        steps = f" and {self.steps} step{plural}" if self.steps else ""
        return f"{self.epochs} of {self.planned} epochs{steps}"


def mark_of(training: TrainingProgress | None) -> str:
    """Return the mark of a record; empty where it does not hold the progress."""
    return training.mark if training else ""
