"""Watches training: every k-th step is looked at, and written down by the first rank."""

from functools import partial
from time import perf_counter

from advnorm import ranks
from advnorm.objectives import CERTIFIED
from advnorm.progress import Progress, clock
from advnorm.records import MonitoredStep, Run
from advnorm.training.build import Experiment
from advnorm.training.state import State
from advnorm.training.step_probe import StepProbe


class Monitor:
    """Decides which steps are looked at, and keeps what they show."""

    def __init__(self, experiment: Experiment, run: Run, progress: Progress) -> None:
        self._experiment, self._run, self._progress = experiment, run, progress
        self._spec = experiment.recipe.monitor
        self._told = False

    def probe(self, state: State) -> StepProbe | None:
        """Return what looks at the step that comes now, if it is one of those."""
        if state.step % self._spec.every:
            return None
        certified = self._experiment.recipe.objective.name in CERTIFIED
        return StepProbe(self._experiment.model, self._spec.questions, certified=certified)

    def record(self, probe: StepProbe, state: State) -> None:
        """Write down what a step has shown; the weights are still those of the step."""
        numbers = probe.numbers()
        ranks.run_on_first(partial(self._write, probe, state, numbers))

    def _write(self, probe: StepProbe, state: State, numbers: dict[str, float]) -> None:
        if "hessian" in self._spec.questions:
            numbers |= self._hessian(probe, state)
        line = MonitoredStep(
            step=state.step + 1,
            epoch=state.epoch + state.seen / self._experiment.steps_per_epoch,
            numbers=numbers,
        )
        self._run.append_monitored(line)

    def _hessian(self, probe: StepProbe, state: State) -> dict[str, float]:
        start, spec = perf_counter(), self._spec
        found = probe.sharpness(steps=spec.hessian_steps, samples=spec.hessian_samples)
        if not self._told:
            self._told = True
            self._tell(perf_counter() - start, state)
        return {
            "hessian": found.largest,
            "hessian/dominant": found.dominant,
            "hessian/error": found.error,
        }

    def _tell(self, seconds: float, state: State) -> None:
        """Say what the Hessian will cost, from its first time."""
        left = (
            self._experiment.recipe.epochs * self._experiment.steps_per_epoch - state.step
        )
        looks = -(-left // self._spec.every)
        self._progress.line(
            f"watching the Hessian takes {seconds:.2g} s, {looks} times: about "
            f"{clock(seconds * looks)} in all (monitor.every, monitor.hessian_samples)"
        )
