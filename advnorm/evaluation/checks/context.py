"""What checks read: the model, the samples, the threat, and the results of attacks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.attacks import classify
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.checks.history import History
from advnorm.evaluation.checks.layer_signs import LayerSigns, layer_signs
from advnorm.evaluation.checks.pgd_path import PGDPath, join, trace_pgd
from advnorm.evaluation.checks.significance import exceeds, rounding_of, share_differing
from advnorm.evaluation.checks.slopes import Slopes, measure
from advnorm.evaluation.condition_names import SUITES, parse_attacks
from advnorm.evaluation.conditions import Condition, parse_conditions
from advnorm.evaluation.engine import logits_of, run_condition
from advnorm.model_state import frozen_parameters
from advnorm.registry import Registry
from advnorm.threat import Threat

WEAK = "pgd-10"
"""The attack that is doubted: sitawarin2021, section 3.2, trains and tests with it."""
PGD = "pgd-50"
FEW = 64
"""Samples that are enough to see a symptom of the outputs."""
CHANCE = 0.1
"""Above chance: the accuracy from which a model has something to hide."""
SLOPES = 16
"""Samples whose slopes are measured, in double precision where that can be had."""
DECISION_ATTACK, DECISION_SAMPLES = "hop_skip_jump-20", 64
"""The attack on decisions, and the samples that it is tried on where nothing is suspect."""
STRONG = SUITES["strong"]
"""Cheaper than AutoAttack's standard suite, with the same kinds of attacks."""


class Finding(NamedTuple):
    """What a check found."""

    flagged: bool
    says: str
    numbers: dict[str, float]


class NotRun(Exception):
    """A check cannot be made on this model."""


class AuditContext:
    """A model in evaluation with its samples; each attack is run at most once."""

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        threat: Threat,
        *,
        suite: Sequence[str] = STRONG,
        surrogate: nn.Module | None = None,
        batch_size: int = 250,
        seed: int = 0,
    ) -> None:
        self.model, self.surrogate, self.threat = model, surrogate, threat
        self.images, self.labels, self.samples = batch
        names = [attack for name in suite for attack in parse_attacks(name)]
        flat = batch.images.ndim != 4
        names = [name for name in names if not (flat and name.entry.image_shaped)]
        self.suite = tuple(name.text for name in names)
        self.batch_size, self.seed = batch_size, seed
        self.logits_fn = logits_of(model)
        self.draws = Draws.of(seed, self.samples).stream("audit")
        self.history: History | None = None
        """The model's first answers, where the check ``stateful`` is run."""
        self.masked = False
        """Whether a check found gradients or scores suspect, so far."""
        self._robust_cache: dict[tuple[str, float], Tensor] = {}

    def logits(self, images: Tensor) -> Tensor:
        """Return logits without a graph, a batch at a time."""
        with torch.no_grad():
            return torch.cat(
                [self.logits_fn(x) for x in torch.split(images, self.batch_size)]
            )

    @cached_property
    def clean_logits(self) -> Tensor:
        """The logits of the clean images."""
        return self.logits(self.images)

    @cached_property
    def few_logits(self) -> Tensor:
        """The logits of the first few images, in a pass of their own."""
        return self.logits(self.images[:FEW])

    @cached_property
    def randomness(self) -> float:
        """The share of the first few images that two passes answer differently."""
        again = self.logits(self.images[:FEW])
        return share_differing(self.few_logits, again, rounding_of(self.model))

    @cached_property
    def correct(self) -> Tensor:
        """Which clean images are classified correctly."""
        return self.is_correct(self.clean_logits)

    def require_better_than_chance(self) -> None:
        """Refuse to look for masking in a model that is no better than chance.

        Raises:
            NotRun: If it is right hardly more often than chance. An untrained network may
                be as rugged as a masked one, and its accuracy says so by itself.
        """
        limit = CHANCE + 1 / self.clean_logits.shape[1]
        if not exceeds(int(self.correct.sum()), len(self.correct), limit):
            raise NotRun("the model is right hardly more often than chance")

    def is_correct(self, logits: Tensor) -> Tensor:
        """Tell for which samples the label's logit is larger than all others."""
        return classify(logits, self.labels) == self.labels

    @cached_property
    def nearby(self) -> Tensor:
        """A random admissible image for each sample, away from exact pixel values."""
        return self.threat.sample(self.images, self.draws.stream("nearby"))

    @cached_property
    def gradients(self) -> Tensor | None:
        """The input gradient of the cross-entropy; ``None`` if there is none."""
        parts = [self._gradient(x, y) for x, y in self._pairs()]
        gradients = [gradient for gradient in parts if gradient is not None]
        return torch.cat(gradients) if len(gradients) == len(parts) else None

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = self.batch_size
        return zip(
            torch.split(self.images, size), torch.split(self.labels, size), strict=True
        )

    def _gradient(self, images: Tensor, labels: Tensor) -> Tensor | None:
        x = images.detach().clone().requires_grad_()
        with torch.enable_grad(), frozen_parameters(self.model):
            loss = F.cross_entropy(self.logits_fn(x), labels, reduction="sum")
        if not loss.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(loss, x, allow_unused=True)
        return gradient

    def robust_under(
        self, attack: str, *, threat: Threat | None = None, among: Tensor | None = None
    ) -> Tensor:
        """Tell which samples are robust under an attack, by its name.

        With ``among`` only these are attacked, and the others count as not robust.
        """
        threat = threat or self.threat
        (condition,) = parse_conditions([attack], [threat], threat.bounds)
        if self.images.ndim != 4 and any(a.entry.image_shaped for a in condition.attacks):
            raise NotRun(f"{attack} needs images (channels, height, width)")
        if condition.needs_gradients and self.gradients is None:
            raise NotRun(f"{attack} needs gradients, and the model has none")
        if among is not None:
            return self._run(condition, among)
        key = (attack, threat.eps)
        if key not in self._robust_cache:
            self._robust_cache[key] = self._run(condition, torch.ones_like(self.correct))
        return self._robust_cache[key]

    def _run(self, condition: Condition, among: Tensor) -> Tensor:
        rows = among.nonzero().squeeze(1)
        batches = (
            Batch(self.images[part], self.labels[part], self.samples[part])
            for part in torch.split(rows, self.batch_size)
        )
        total = len(rows)
        verdicts = run_condition(
            self.model, batches, condition, total=total, seed=self.seed
        )
        robust = torch.zeros_like(among)
        robust[rows] = torch.tensor(verdicts.robust, dtype=torch.bool, device=among.device)
        return robust

    @property
    def whole_box(self) -> Threat:
        """The threat that contains every image: its radius is the diameter of the box."""
        return self.threat.with_eps(self.threat.diameter(self.images.shape[1:]))

    @property
    def growing_threats(self) -> list[Threat]:
        """Half the radius, the radius, twice, four times, and the whole box."""
        most, eps = self.whole_box, self.threat.eps
        inside = [
            eps * factor for factor in (0.5, 1.0, 2.0, 4.0) if eps * factor < most.eps
        ]
        return [*(self.threat.with_eps(radius) for radius in inside), most]

    @cached_property
    def slopes(self) -> Slopes | None:
        """The slopes of the margin at a few samples; ``None`` without gradients."""
        few = slice(SLOPES)
        draws = self.draws[few].stream("slopes")
        return measure(self.model, self.images[few], self.threat, draws)

    @cached_property
    def layer_signs(self) -> list[LayerSigns]:
        """What single layers do to gradients."""
        return layer_signs(self.model, self.images)

    @cached_property
    def path(self) -> PGDPath:
        """The iterates of PGD on all samples."""
        if self.gradients is None:
            raise NotRun("PGD needs gradients, and the model has none")
        parts = torch.split(self.draws.keys, self.batch_size)
        each = zip(self._pairs(), map(Draws, parts), strict=True)
        with frozen_parameters(self.model):
            return join(
                [trace_pgd(self.logits_fn, x, y, self.threat, d) for (x, y), d in each]
            )

    @cached_property
    def robust_to_suite(self) -> Tensor:
        """Tell which samples are robust to PGD and to the attacks of the suite."""
        robust = self.correct
        for attack in (WEAK, PGD, *self.suite):
            cached = self._robust_cache.get((attack, self.threat.eps))
            with suppress(NotRun):
                robust = (
                    self.robust_under(attack, among=robust)
                    if cached is None
                    else robust & cached
                )
        return robust

    @cached_property
    def robust_to_decisions(self) -> Tensor:
        """Tell which of these samples are robust to HopSkipJump as well.

        Only the first :data:`DECISION_SAMPLES` of them are attacked, unless gradients or
        scores are suspect: the attack takes thousands of queries per sample.
        """
        robust = self.robust_to_suite
        few = torch.arange(len(robust), device=robust.device) < DECISION_SAMPLES
        attacked = robust if self.masked else robust & few
        return torch.where(
            attacked, self.robust_under(DECISION_ATTACK, among=attacked), robust
        )

    @cached_property
    def strongest(self) -> Tensor:
        """Tell which samples withstand all attacks of the audit together."""
        self.robust_under(WEAK), self.robust_under(PGD)
        return self.robust_to_decisions


CHECKS: Registry[Callable[[AuditContext], Finding]] = Registry("check")
