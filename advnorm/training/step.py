"""One training step: augment, attack, differentiate, check the numbers, update."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.attacks import GOALS, AttackGoal, Gain, LogitsFn, NonFiniteGradientError, pgd
from advnorm.data import AUGMENTATIONS, Batch, mixup, smooth_labels
from advnorm.draws import Draws
from advnorm.folding import fast_logits
from advnorm.gradients import BatchObjective
from advnorm.norms import freeze_statistics, keep_statistics, unsynced_statistics
from advnorm.objectives import Adversary, Loss, Objective
from advnorm.training.build import DTYPES, Experiment
from advnorm.training.components import (
    build_gradient_rule,
    build_objective,
    weight_schedules,
)
from advnorm.training.guards import NotFiniteError, gradient_norm
from advnorm.training.monitor import Monitor
from advnorm.training.recipe_checks import pieces_of
from advnorm.training.state import State
from advnorm.training.step_probe import StepProbe

HALF_SCALE = 2.0**10
GROWTH_STEPS = 2000
_GRADIENT_SCALES = (HALF_SCALE, HALF_SCALE**0.5, 1.0)
"""How much an attack in float16 scales its gradients; smaller ones after an overflow."""


class StepMetrics(NamedTuple):
    """Loss and accuracy of a step, read from the device in one transfer."""

    loss: float
    correct: float
    parts: dict[str, float]


class Stepper:
    """Holds what does not change between steps."""

    def __init__(self, experiment: Experiment, monitor: Monitor | None = None) -> None:
        recipe = experiment.recipe
        self.experiment, self.monitor = experiment, monitor
        self.objective = build_objective(recipe)
        self.rule = build_gradient_rule(recipe)
        self.weights = weight_schedules(recipe)
        self.steps_factor = recipe.attack.steps_schedule.build()
        self.augment = AUGMENTATIONS[recipe.data.augment]
        self.lr_factor = recipe.optimizer.schedule.build()
        self.eps_factor = recipe.threat.schedule.build()
        self.goal = GOALS[recipe.attack.target]
        self.own_buffers = unsynced_statistics(experiment.model)
        self.gradient_scales = _GRADIENT_SCALES if recipe.precision == "float16" else (1.0,)
        self.failed: NonFiniteGradientError | None = None
        self.logits: nn.Module = (
            torch.compile(experiment.model)  # type: ignore[assignment]
            if recipe.compile is True  # "auto" is decided before the first step
            else experiment.model
        )

    def __call__(self, batch: Batch, state: State) -> StepMetrics:
        """Take one step; non-finite numbers raise before the weights change."""
        experiment, recipe = self.experiment, self.experiment.recipe
        now = state.epoch + state.seen / experiment.steps_per_epoch
        for group in experiment.optimizer.param_groups:
            group["lr"] = self.lr(now) * group["factor"]
        _seed(recipe.seed + 1_000_003 * (state.step + 1), batch.images.device)
        draws = Draws.of(recipe.seed, batch.samples).stream("train", state.epoch)
        images, labels = self._prepare(batch, draws)
        share = len(batch.labels) / experiment.batch_size
        probe = self.monitor.probe(state) if self.monitor else None
        experiment.model.train()
        experiment.optimizer.zero_grad(set_to_none=True)
        try:
            with self._autocast(), self._statistics(state.epoch):
                loss = self._gradient(images, labels, draws, now, state.scale, probe)
        except NonFiniteGradientError as error:
            raise NotFiniteError(str(error)) from error
        norm, metrics = self._over_ranks(loss, share)
        if probe:
            probe.gradients(state.scale)
        if self._check_finite(metrics.loss, norm, state):
            if self.monitor and probe:
                self.monitor.record(probe, state)
            experiment.optimizer.step()
        ranks.broadcast(self.own_buffers)  # else the ranks would attack different models
        return metrics

    def _over_ranks(self, loss: Loss, share: float) -> tuple[float, StepMetrics]:
        """Sum the ranks' numbers; NaN on one rank is NaN on all."""
        model, parts = self.experiment.model, loss.parts
        means = [share * x.detach().double() for x in (loss.total, *parts.values())]
        failed = torch.full_like(means[0], float(self.failed is not None))
        values = torch.stack([*means, loss.correct.double(), failed])
        ranks.all_reduce([values])
        norm, total, *others = torch.cat([gradient_norm(model)[None], values]).tolist()
        if others[-1]:
            message = "the attack of another rank met a gradient that is not finite"
            raise NotFiniteError(str(self.failed or message))
        return norm, StepMetrics(total, others[-2], dict(zip(parts, others, strict=False)))

    def _gradient(
        self,
        images: Tensor,
        labels: Tensor,
        draws: Draws,
        now: float,
        scale: float,
        probe: StepProbe | None = None,
    ) -> Loss:
        """Fill ``.grad`` by the recipe's rule, one piece of the batch after the other."""
        weights = {name: value(now) for name, value in self.weights.items()}
        pieces = pieces_of(self.experiment.recipe, self.experiment.batch_size)
        losses = list[Loss]()
        for number, rows in enumerate(torch.arange(len(images)).chunk(pieces), start=1):
            piece = slice(int(rows[0]), int(rows[-1]) + 1)
            objective: Objective = partial(self.objective, **weights)
            adversary = self._adversary(now, draws[piece])
            if probe and not losses:  # the first piece of the batch stands for all
                objective, adversary = probe.attach(
                    objective, adversary, images[piece], labels[piece]
                )
            problem = BatchObjective(
                self.experiment.model,
                images[piece],
                labels[piece],
                objective,
                adversary,
                scale=scale / pieces,
                compiled=self.logits,
                global_rows=self.experiment.batch_size // pieces,
            )
            with self._moved_once(last=number == pieces):
                losses.append(self.rule(problem))
        return _mean_loss(losses)

    def _moved_once(self, *, last: bool) -> AbstractContextManager[None]:
        """Let the last part alone move the running statistics, if the recipe says so."""
        if last or self.experiment.recipe.optimizer.together is None:
            return nullcontext()
        return keep_statistics(self.experiment.model)

    def lr(self, now: float) -> float:
        """Return the learning rate at a time in epochs."""
        return self.experiment.recipe.optimizer.lr * self.lr_factor(now)

    def eps(self, now: float) -> float:
        """Return the radius at a time in epochs."""
        return self.experiment.threat.eps * self.eps_factor(now)

    def attack_steps(self, now: float) -> int:
        """Return the steps of the attack at a time in epochs."""
        return max(1, round(self.experiment.recipe.attack.steps * self.steps_factor(now)))

    def _prepare(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        recipe = self.experiment.recipe
        images = self.augment(batch.images, draws.stream("augment"))
        labels = batch.labels
        if recipe.data.mixup:
            rows = self.experiment.batch_size  # a partner may be another rank's
            images, labels = mixup(
                ranks.all_gather(images, rows),
                ranks.all_gather(labels, rows),
                Draws(ranks.all_gather(draws.stream("mixup").keys, rows)),
                alpha=recipe.data.mixup,
                classes=len(self.experiment.data.classes),
            )
            images, labels = images[ranks.shard(rows)], labels[ranks.shard(rows)]
        if recipe.data.label_smoothing:
            classes = len(self.experiment.data.classes)
            labels = smooth_labels(
                labels, share=recipe.data.label_smoothing, classes=classes
            )
        if recipe.precision == "float64":
            images = images.double()
            labels = labels.double() if labels.is_floating_point() else labels
        if recipe.channels_last and images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return images, labels

    def _adversary(self, now: float, draws: Draws) -> Adversary:
        spec, factor = self.experiment.recipe.attack, self.eps_factor(now)
        statistics = spec.statistics_at(now)
        if factor <= 0:
            return Adversary(None, statistics)
        threat = self.experiment.threat.scaled(factor)
        steps = self.attack_steps(now)
        step_size = spec.step_size or 2.5 * self.experiment.threat.eps / steps

        def search(
            logits_fn: LogitsFn, clean: Tensor, labels: Tensor, goal: AttackGoal
        ) -> Tensor:
            if isinstance(logits_fn, nn.Module):
                logits_fn = fast_logits(logits_fn, clean, spec.precision) or logits_fn
            for scale in self.gradient_scales:
                adversarial, failed = clean, None
                try:
                    adversarial = pgd(
                        logits_fn,
                        clean,
                        labels,
                        threat,
                        steps=steps,
                        step_size=step_size * factor,
                        goal=_scaled_goal(goal, scale),
                        clean_start=spec.clean_start,
                        draws=draws.stream("attack"),
                    )
                except NonFiniteGradientError as error:
                    failed = error
                # all ranks retry or none: their norms may share statistics
                if scale == 1 or not ranks.all_reduce_max(int(failed is not None)):
                    break
            if failed and ranks.size() == 1:
                raise failed
            self.failed = self.failed or failed  # the other ranks wait for this step
            return adversarial

        return Adversary(search, statistics, self.goal, threat)

    def _statistics(self, epoch: int) -> AbstractContextManager[None]:
        """Freeze the running statistics in the last epochs, if the recipe says so."""
        frozen = (
            epoch
            >= self.experiment.recipe.epochs - self.experiment.recipe.norm.freeze_epochs
        )
        return freeze_statistics(self.experiment.model) if frozen else nullcontext()

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self.experiment.recipe.precision]
        half = dtype in (torch.bfloat16, torch.float16)
        return torch.autocast(
            self.experiment.device.type,
            dtype=dtype if half else torch.bfloat16,
            enabled=half,
        )

    def _check_finite(self, loss: float, norm: float, state: State) -> bool:
        """Unscale and return whether to update the weights; raise if no scale helps."""
        finite = torch.isfinite(torch.tensor([loss, norm])).tolist()
        if finite[0] and finite[1]:
            self._rescale(norm, state.scale)
            if self.experiment.recipe.precision == "float16":
                _grow_scale(state)
            return True
        if finite[0] and state.scale > 1.0:  # float16 overflow: a smaller scale, no step
            state.scale, state.steady = state.scale / 2, 0
            return False
        what = f"the loss is {loss}" if not finite[0] else f"a gradient is {norm}"
        raise NotFiniteError(what)

    def _rescale(self, norm: float, scale: float) -> None:
        """Undo the loss scale of half precision, and clip the gradient."""
        clip = self.experiment.recipe.optimizer.clip_norm
        if clip is not None and norm > clip * scale:
            scale = norm / clip
        if scale != 1.0:
            grads = [
                p.grad for p in self.experiment.model.parameters() if p.grad is not None
            ]
            torch._foreach_div_(grads, scale)


def _scaled_goal(goal: AttackGoal, scale: float) -> AttackGoal:
    """Scale the attack's objective so that float16 does not underflow; same direction."""
    if scale == 1:
        return goal

    def scaled(f: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
        gain = goal(f, clean, labels, draws)
        return lambda logits: scale * gain(logits)

    return scaled


def _mean_loss(losses: list[Loss]) -> Loss:
    """Return the loss of a batch from those of its equally large pieces."""
    if len(losses) == 1:
        return losses[0]
    parts = {
        name: torch.stack([loss.parts[name] for loss in losses]).mean()
        for name in losses[0].parts
    }
    total = torch.stack([loss.total.detach() for loss in losses]).mean()
    return Loss(total, parts, torch.stack([loss.correct for loss in losses]).sum())


def _grow_scale(state: State) -> None:
    state.steady += 1
    if state.steady >= GROWTH_STEPS:
        state.scale, state.steady = state.scale * 2, 0


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout uses.

    On a CPU only its own: ``torch.manual_seed`` records a stack trace for each absent
    accelerator, every time.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
