r"""The planted test: whether the attacks of an evaluation find what is surely there.

The binarization test of Zimmermann et al. (Increasing Confidence in Adversarial Robustness
Evaluations, NeurIPS 2022, arXiv:2206.13991). Around a sample many points are drawn inside
the ball and one on its boundary, and the model's last linear layer is replaced by a readout
that separates the one from the many. The modified model has an adversarial example inside
the ball for certain. Attacks that miss it on more than 5% of the samples cannot be trusted
on the model itself. A pass proves nothing where random sampling does as well.

Ours differ from the authors' code in this: half of the inner points are on the boundary of
the inner ball, like the planted one, so that it cannot be recognized by its length alone;
the readout has a closed form; and what the model computes after its last linear layer stays
in place, with logits of the model's own size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.attacks import NonFiniteGradientError
from advnorm.data import Batch
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.conditions import Condition, parse_conditions
from advnorm.evaluation.engine import logits_of, run_condition, search_dtype
from advnorm.evaluation.last_layer import PassCounter, find_last_layer, passes_counted
from advnorm.evaluation.planting import CHEAP, Planter, Plants, PointCounts
from advnorm.evaluation.readouts import readouts_in_place
from advnorm.evaluation.samples import AnyModel, as_module
from advnorm.evaluation.stages import AttackSearch, Certificate
from advnorm.model_state import eval_mode
from advnorm.records import ADAPTED, Check, PlantedTest, Result, Verdicts
from advnorm.threat import Threat

CHECK = "planted_test"
"""The name of the check."""
MISSED = (
    "the attacks miss adversarial examples that were planted within their reach, so they "
    "may miss real ones: let the search pass around what hides them (a smooth surrogate "
    "of that layer in the backward pass), take more steps and restarts, or other attacks, "
    "until they find at least 95%"
)
SUITES_TESTED = ("standard", "full")
"""The suites whose every evaluation has the cheap form."""
SAMPLES = 32
"""Samples of the cheap form."""
SHARE = 0.1
"""Of the passes of an evaluation: what the cheap form may cost."""
_PROBED = 8
_TOGETHER = 2
"""Samples that go through the later attacks together, where there is a budget."""


def planted_test(  # noqa: PLR0913 (one flat call)
    model: AnyModel,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    conditions: Sequence[str | Condition],
    *,
    samples: Tensor | None = None,
    points: PointCounts = CHEAP,
    budget: int | None = None,
    batch_size: int = 250,
    seed: int = 0,
) -> PlantedTest:
    """Return how many planted adversarial examples the attacks of ``conditions`` find.

    >>> from advnorm import Linf
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> images, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    >>> planted_test(model, images, labels, Linf(0.1), ["pgd-20"]).success.n
    4

    Args:
        model: Images in the threat's bounds to logits. Its last linear layer is looked for
            in a pass; where there is none the result says so.
        images: Samples to plant at, shape ``(n, ...)``; what the model predicts for them
            does not matter.
        labels: Their classes.
        threat: The ball. Every attack searches it.
        conditions: The evaluation: names, or conditions with settings of their own.
        samples: The numbers of the samples, which decide random numbers; else from 0.
        points: How many points are drawn for each sample.
        budget: Passes after which no further sample is searched. The first attack sees all
            samples, and the later ones a few of those that are left at a time, until the
            result is certain. ``None`` searches all.
        batch_size: Points that pass the model together.
        seed: Decides the points and the attacks' random numbers.
    """
    model = as_module(model)
    numbers = (
        torch.arange(len(images), device=images.device) if samples is None else samples
    )
    batch = Batch(images.detach().to(search_dtype(model)), labels.long(), numbers)
    searches = _searches(conditions, threat, images.shape[1:])
    device = next((p.device for p in model.parameters()), images.device)
    batch = Batch(*(tensor.to(device) for tensor in batch))
    with ranks.single_process(), eval_mode(model), passes_counted(model) as counter:
        searcher = _Searcher(model, batch, threat, points, seed, batch_size, counter)
        return searcher.run(searches, budget)


def planted_test_of(
    model: nn.Module,
    condition: Condition,
    verdicts: Verdicts,
    load: Callable[[Tensor], Batch],
    *,
    classes: int,
    batch_size: int = 250,
    seed: int = 0,
) -> PlantedTest | None:
    """Plant at a few samples that a suite left robust, at 10% of its cost.

    ``None`` where nothing was searched, or nothing is left: then there is nothing to
    doubt. ``load`` returns samples by their numbers.
    """
    adaptation = condition.adaptation
    if condition.name.removesuffix(ADAPTED) not in SUITES_TESTED or not condition.searches:
        return None
    if adaptation is not None and adaptation.changes_verdicts:
        return None  # features are random, or those of a batch
    certified = verdicts.certified or (False,) * len(verdicts.samples)
    rows = zip(verdicts.samples, verdicts.robust, certified, strict=True)
    left = [sample for sample, robust, sure in rows if robust and not sure]
    if not left:
        return None
    assert condition.threat is not None
    batch = load(torch.tensor(left[:SAMPLES]))
    try:
        return planted_test(
            model,
            batch.images,
            batch.labels,
            condition.threat,
            [condition],
            samples=batch.samples,
            budget=planted_budget(condition, len(left), classes),
            batch_size=batch_size,
            seed=seed,
        )
    except (ValueError, RuntimeError) as error:  # whatever a model raises in a pass
        text = str(error).partition("\n")[0]
        return PlantedTest(
            attacks=tuple(name.text for name in condition.attacks),
            solved=0,
            missed=0,
            inner_points=CHEAP.inner,
            random_points=CHEAP.random,
            passes=0,
            reason=f"a pass failed: {text}",
        )


def planted_finding(test: PlantedTest) -> Check:
    """Return the test as a check of an audit."""
    if test.reason or not test.success.n:
        return Check(name=CHECK, status="not run", says=str(test))
    status = "flagged" if test.flagged else "passed"
    return Check(name=CHECK, status=status, numbers=test.numbers, says=MISSED)


def with_planted_test(result: Result, test: PlantedTest | None) -> Result:
    """Return a result with the test beside it, and its flag where it failed."""
    flags = (planted_finding(test).flag,) if test and test.flagged else ()
    return result.model_copy(update={"planted": test, "flags": (*result.flags, *flags)})


def planted_budget(condition: Condition, attacked: int, classes: int) -> int:
    """Return 10% of the passes that an evaluation spent on the samples it did not break.

    ``attacked`` counts them. They pass through all attacks, so this is the least it cost.
    """
    each = sum(name.passes_with(classes) for name in condition.attacks)
    return int(SHARE * attacked * each)


@dataclass(frozen=True)
class _Searcher:
    """A model and samples, with what the parts of the test share."""

    model: nn.Module
    batch: Batch
    threat: Threat
    points: PointCounts
    seed: int
    batch_size: int
    counter: PassCounter

    def run(self, searches: Sequence[Condition], budget: int | None) -> PlantedTest:
        """Plant, check, and search."""
        reason, solved, missed = "", 0, 0
        plants = Plants(None, torch.zeros(0, dtype=torch.long), 0)
        classes, layer = self._count_classes(), None
        if len(self.batch.images):
            layer = find_last_layer(self.model, self._own_images[:_PROBED], classes)
        if layer is None:
            reason = "no linear layer of the model decides its predictions"
        else:
            planter = Planter(
                self.model,
                layer,
                self.threat,
                self.points,
                classes,
                seed=self.seed,
                batch_size=self.batch_size,
            )
            plants = planter.plant(self.batch)
            if plants.readouts is not None and len(plants.rows):
                with readouts_in_place(self.model, layer, plants.readouts):
                    solved, missed = self._search(searches, plants.rows, budget)
        count = len(plants.rows)
        return PlantedTest(
            attacks=tuple(a.text for condition in searches for a in condition.attacks),
            solved=solved,
            missed=missed,
            undecided=count - solved - missed,
            not_planted=0 if reason else len(self.batch.images) - count,
            random=plants.at_random,
            inner_points=self.points.inner,
            random_points=self.points.random,
            passes=self.counter.passes,
            reason=reason,
        )

    @property
    def _own_images(self) -> Tensor:
        """The images in the model's own precision."""
        kinds = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        return self.batch.images.to(next(kinds, torch.float32))

    def _count_classes(self) -> int:
        with torch.no_grad():
            return int(logits_of(self.model)(self.batch.images[:2]).shape[1])

    def _search(
        self, searches: Sequence[Condition], rows: Tensor, budget: int | None
    ) -> tuple[int, int]:
        """Return how many samples attacks solved, and how many all of them missed."""
        if not searches:
            return 0, 0
        if budget is None or len(searches) == 1:
            left = rows
            for search in searches:
                left = self._survivors(search, left)
            return len(rows) - len(left), len(left)
        left = self._survivors(searches[0], rows)
        solved, missed = len(rows) - len(left), 0
        allowed = (1 - PlantedTest.PASS) * len(rows)
        for group in torch.split(left, _TOGETHER):
            rest = group
            for search in searches[1:]:
                rest = self._survivors(search, rest)
            solved, missed = solved + len(group) - len(rest), missed + len(rest)
            if missed > allowed or self.counter.passes >= budget:
                break
        return solved, missed

    def _survivors(self, search: Condition, rows: Tensor) -> Tensor:
        """Return the rows that an attack does not solve."""
        if not len(rows):
            return rows
        batch = Batch(*(tensor[rows] for tensor in self.batch))
        try:
            verdicts = run_condition(
                self.model, [batch], search, total=len(rows), seed=self.seed
            )
        except NonFiniteGradientError:
            return rows
        return rows[torch.tensor(verdicts.robust, device=rows.device)]


def _searches(
    conditions: Sequence[str | Condition], threat: Threat, shape: Sequence[int]
) -> list[Condition]:
    """Return a condition for each attack, in order, without certificates."""
    parsed: list[Condition] = []
    for each in conditions:
        if isinstance(each, Condition):
            parsed.append(each)
        else:
            parsed += parse_conditions([each], [threat], threat.bounds, shape=shape)
    chosen = [c for c in parsed if c.searches and c.name != RADII]
    for condition in chosen:
        if condition.threat != threat:
            raise ValueError(
                f"{condition.name} searches {condition.threat}, and the planted test is in "
                f"{threat}: give conditions of one threat"
            )
    return [attack for condition in chosen for attack in _single_attacks(condition)]


def _single_attacks(condition: Condition) -> Iterator[Condition]:
    """Yield a condition for each attack, in the precision of the model."""
    condition = replace(condition, precision="float32")
    for stage in condition.stages:
        if isinstance(stage, AttackSearch):
            for name, attack in zip(condition.attacks, stage.attacks, strict=True):
                search = replace(stage, attacks=[attack])
                yield replace(condition, stages=(search,), attacks=(name,))
        elif not isinstance(stage, Certificate):
            yield replace(condition, stages=(stage,))
