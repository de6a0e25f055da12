"""Runs conditions over samples: resumable, with the same verdicts in any batching."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.allocator import freed_memory_kept
from advnorm.attacks import LogitsFn
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.inputs import check_images, check_labels, check_logits
from advnorm.evaluation.sharding import failing_together, gather_rows, own_rows
from advnorm.evaluation.stages import NOT_BROKEN, BatchVerdicts, StageInput, predict
from advnorm.folding import fast_logits
from advnorm.image_gradients import faster_image_gradients
from advnorm.model_output import read_logits
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.progress import Progress, Quiet
from advnorm.records import Bracket, Verdicts
from advnorm.threat import Bounds


class Examples(NamedTuple):
    """A few images before and after an attack, to be looked at."""

    clean: Tensor
    adversarial: Tensor
    labels: Tensor
    clean_predictions: Tensor
    adversarial_predictions: Tensor
    samples: Tensor
    """Their numbers in the data."""


class PassTally:
    """Counts the images that pass a model in an evaluation, over all ranks."""

    def __init__(self) -> None:
        self.queries = 0
        self.gradients = 0

    def counting(self, logits_fn: LogitsFn) -> LogitsFn:
        """Return the function, counting its images and those with a gradient."""

        def counted(images: Tensor) -> Tensor:
            self.queries += len(images)
            if images.requires_grad and torch.is_grad_enabled():
                self.gradients += len(images)
            return logits_fn(images)

        return counted

    def add_over_ranks(self, other: "PassTally") -> None:
        """Add what each rank counted."""
        both = torch.tensor([other.queries, other.gradients])
        ranks.all_reduce([both])
        self.queries += int(both[0])
        self.gradients += int(both[1])


def run_condition(
    model: nn.Module,
    batches: Iterable[Batch],
    condition: Condition,
    *,
    total: int,
    seed: int = 0,
    done: Verdicts | None = None,
    save: Callable[[Verdicts, Examples | None], None] | None = None,
    progress: Progress | None = None,
    tally: PassTally | None = None,
) -> Verdicts:
    """Test every sample under ``condition``; ``done`` are verdicts to continue from.

    During the search the model is in evaluation mode with frozen parameters; afterwards it
    is restored. Searches call its folded form where that is equal. ``save`` is called after
    each batch with all verdicts so far, and with the examples of the first batch. Several
    ranks share each batch, and rank 0 saves. ``tally`` counts the passes.
    """
    own_tally, verdicts = PassTally(), done or Verdicts()
    search = SearchFunctions(model, condition, own_tally, seed=seed)
    progress, logits_fn = progress or Quiet(), own_tally.counting(logits_of(model))
    allocator = freed_memory_kept(next(model.parameters(), None))
    with eval_mode(model), frozen_parameters(model), allocator, search.ready():
        for batch in batches:
            count = len(batch.samples)
            if not count:
                continue
            images, labels = batch.images.to(search_dtype(model)), batch.labels
            rows, draws = own_rows(count), Draws.of(seed, batch.samples)
            with failing_together():
                own_images = images[rows]
                search.prepare(own_images)
                part = StageInput(
                    model,
                    logits_fn,
                    own_images,
                    labels[rows],
                    draws[rows],
                    samples=batch.samples[rows],
                    fast_fn=search.fast_fn,
                    half_fn=search.half_fn,
                    adapted_fn=search.adapted_fn,
                )
                own = condition.change.run(part)
                for stage in condition.stages:
                    own = stage.run(part, own)
            gathered: list[Any] = [
                None if t is None else gather_rows(t, count) for t in own
            ]
            tested = BatchVerdicts(*gathered)
            first = not verdicts.samples
            verdicts = _extend(verdicts, batch, tested, condition)
            if save:
                shown = batch._replace(images=images)
                answers = logits_of(model)  # a few to look at, which count as no search
                examples = _examples(answers, shown, tested.images) if first else None
                ranks.run_on_first(partial(save, verdicts, examples))
            so_far = verdicts.accuracy()
            progress.update(so_far.n, total, f"{condition.key} {so_far.fraction:.1%}")
    if tally is not None:
        tally.add_over_ranks(own_tally)
    return verdicts


class SearchFunctions:
    """What searches call: fast passes, made at the first images, or an adaptive search."""

    def __init__(
        self, model: nn.Module, condition: Condition, tally: PassTally, *, seed: int = 0
    ) -> None:
        self.model, self.condition, self.tally = model, condition, tally
        self.fast_fn: LogitsFn | None = None
        self.half_fn: LogitsFn | None = None
        adaptation = condition.adaptation
        self.adapted_fn = adaptation.search_fn(seed, tally.counting) if adaptation else None
        threat = condition.threat
        without_search = not condition.searches or (threat is not None and not threat.eps)
        self._ready = (
            without_search or adaptation is not None
        )  # a folded model has no slots

    def ready(self) -> AbstractContextManager[None]:
        """Return the scope in which an adaptive search and its verdicts run."""
        adaptation = self.condition.adaptation
        return adaptation.ready() if adaptation else nullcontext()

    def prepare(self, images: Tensor) -> None:
        """Fold the model, if that is not done and there is something to search."""
        if self._ready or not len(images):
            return
        self._ready = True
        self.fast_fn = self._counted(fast_logits(self.model, images))
        if self.condition.precision == "bfloat16":
            self.half_fn = self._counted(fast_logits(self.model, images, "bfloat16"))
            if self.half_fn is None:
                raise ValueError(
                    "a search in bfloat16 passes a folded model, and this one cannot be "
                    "folded (it cannot be traced, has hooks or random layers, computes "
                    "under autocast, or its norms use the batch): leave search_precision "
                    "at float32"
                )

    def _counted(self, logits_fn: LogitsFn | None) -> LogitsFn | None:
        return None if logits_fn is None else self.tally.counting(logits_fn)


def check_model(model: nn.Module, batch: Batch, *, bounds: Bounds) -> int:
    """Refuse a model that cannot be attacked frozen; return the number of classes.

    A model that optimizes its own weights in a prediction cannot.
    """
    try:
        with frozen_parameters(model):
            return check_forward(model, batch, bounds=bounds)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        raise ValueError(
            "the model takes gradients of its own weights in a prediction, and these are "
            "frozen: evaluate it without adapting it, or audit it as it is "
            "(advnorm.evaluation.checks)"
        ) from error


def check_forward(model: nn.Module, batch: Batch, *, bounds: Bounds) -> int:
    """Refuse a model and images that do not fit together; return the number of classes."""
    check_images(batch.images, bounds)
    images = batch.images.clone()
    with eval_mode(model), torch.no_grad():
        logits = logits_of(model)(images)
    if not torch.equal(images, batch.images):
        raise ValueError(
            "the model changes the images that it is given in place, and an attack would "
            "lose them: write x = x - mean instead of x.sub_(mean)"
        )
    check_logits(logits, count=len(batch.images))
    classes = int(logits.shape[1])
    check_labels(batch.labels, count=len(batch.images), classes=classes)
    return classes


def logits_of(model: nn.Module) -> LogitsFn:
    """Return a function that casts images to the model's precision, and its logits back.

    So an attack on a model in half precision keeps its images and steps in float32.
    """
    own, wide = _dtype(model), search_dtype(model)

    def logits_fn(images: Tensor) -> Tensor:
        with faster_image_gradients(images):
            return read_logits(model(images.to(own))).to(wide)

    return logits_fn


def search_dtype(model: nn.Module) -> torch.dtype:
    """Return float64 for a model in double precision, else float32."""
    return torch.promote_types(_dtype(model), torch.float32)


def _dtype(model: nn.Module) -> torch.dtype:
    kinds = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


def _extend(
    done: Verdicts, batch: Batch, tested: BatchVerdicts, condition: Condition
) -> Verdicts:
    names = {NOT_BROKEN: ""} | {i: a.text for i, a in enumerate(condition.attacks)}
    certified = tested.certified.tolist() if condition.certifies else []
    curve = [] if tested.curve is None else tested.curve.tolist()
    radii = [] if tested.radii is None else map(_bracket, tested.radii.tolist())
    draws = [] if tested.draws is None else tested.draws.tolist()
    return Verdicts(
        fingerprint=done.fingerprint,
        samples=(*done.samples, *batch.samples.tolist()),
        labels=(*done.labels, *batch.labels.tolist()),
        predictions=(*done.predictions, *tested.predictions.tolist()),
        robust=(*done.robust, *tested.robust.tolist()),
        by=(*done.by, *(names[number] for number in tested.broken_by.tolist())),
        certified=(*done.certified, *certified),
        curve=(*done.curve, *curve),
        radii=(*done.radii, *radii),
        draws=(*done.draws, *draws),
    )


def _bracket(radii: Sequence[float]) -> Bracket:
    certified, broken = radii
    return certified, broken if isfinite(broken) else None


def _examples(logits_fn: LogitsFn, batch: Batch, seen: Tensor) -> Examples:
    """Keep images that were classified correctly, with what the condition made of them."""
    clean, labels = batch.images, batch.labels
    before, after = (predict(logits_fn, images, labels) for images in (clean, seen))
    rows = (before == labels).nonzero().squeeze(1)
    tensors = (clean, seen, labels, before, after, batch.samples)
    return Examples(*(tensor[rows].cpu() for tensor in tensors))
