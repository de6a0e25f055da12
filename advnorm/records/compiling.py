"""Whether a run compiles its model, and why."""

from pydantic import NonNegativeFloat

from advnorm.records.base import Record


class CompileDecision(Record):
    """What ``compile: auto`` decided when the run began; a resumed run keeps to it."""

    compiles: bool
    """Whether the model is compiled."""
    reason: str
    """Why, in a sentence."""
    eager_step: NonNegativeFloat | None = None
    """Seconds of a training step of the plain model, in the trial."""
    compiled_step: NonNegativeFloat | None = None
    """Seconds of one of the compiled model."""
    compiling: NonNegativeFloat | None = None
    """Seconds that compiling took."""

    def __str__(self) -> str:
        return f"compile: auto: {'compiled' if self.compiles else 'eager'}; {self.reason}"
