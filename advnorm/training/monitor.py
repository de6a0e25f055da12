"""Monitors training: every k-th step is measured, and recorded by rank 0."""

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
    """Decides which steps are measured, and records the numbers."""

    def __init__(self, experiment: Experiment, run: Run, progress: Progress) -> None:
        self._experiment, self._run, self._progress = experiment, run, progress
        self._spec = experiment.recipe.monitor
        self._cost_shown = False

    def probe(self, state: State) -> StepProbe | None:
        """Return a probe for the next step, if that is one to measure."""
        if state.step % self._spec.every:
            return None
        certified = self._experiment.recipe.objective.name in CERTIFIED
        return StepProbe(self._experiment.model, self._spec.questions, certified=certified)

    def record(self, probe: StepProbe, state: State) -> None:
        """Record the numbers of a step, before its weights change."""
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
        spectrum = probe.sharpness(steps=spec.hessian_steps, samples=spec.hessian_samples)
        if not self._cost_shown:
            self._cost_shown = True
            self._show_cost(perf_counter() - start, state)
        return {
            "hessian": spectrum.largest,
            "hessian/dominant": spectrum.dominant,
            "hessian/error": spectrum.error,
        }

    def _show_cost(self, seconds: float, state: State) -> None:
        """Estimate the cost of all Hessians from the first one."""
        left = (
            self._experiment.recipe.epochs * self._experiment.steps_per_epoch - state.step
        )
        times = -(-left // self._spec.every)
        self._progress.line(
            f"the Hessian takes {seconds:.2g} s, {times} times: about "
            f"{clock(seconds * times)} in all (monitor.every, monitor.hessian_samples)"
        )
