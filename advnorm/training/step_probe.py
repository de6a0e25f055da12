r"""Measures one training step by hooks on its own pass; the step itself is not changed.

Hooks read the features of the objective's first pass, not those of the attack or of the
second pass of a gradient rule. Certified objectives bound the model without calling it: for
them an extra clean pass with batch statistics is made.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from advnorm.diagnosis import spectrum
from advnorm.diagnosis.features import feature_layers
from advnorm.diagnosis.gradient_norm import gradient_norms
from advnorm.diagnosis.hessian import Spectrum
from advnorm.diagnosis.moments import channel_average, last_layers
from advnorm.diagnosis.wasserstein import running_moments_of, squared_distance
from advnorm.norms import Domain, keep_statistics, mode, route, twice_differentiable
from advnorm.norms.moments import measure_moments
from advnorm.norms.route import DOMAINS, current_route
from advnorm.objectives import Adversary, AdversaryCache, Loss, Objective

Hook = Callable[[nn.Module, tuple[Tensor, ...]], None]


class StepProbe:
    """Measures one step; the numbers stay on the device until they are read."""

    def __init__(
        self, model: nn.Module, questions: Collection[str], *, certified: bool
    ) -> None:
        self.model, self.questions, self.certified = model, questions, certified
        self._numbers: dict[str, Tensor] = {}
        self._deepest: dict[Domain, Tensor] = {}
        self._handles: list[RemovableHandle] | None = None
        self._loss: Callable[[int | None], Tensor] | None = None

    def attach(
        self, objective: Objective, adversary: Adversary, clean: Tensor, labels: Tensor
    ) -> tuple[Objective, Adversary]:
        """Return both, wrapped so that the objective's first call is measured."""
        memory = AdversaryCache(adversary, during=self._paused)
        calls = 0

        def measured(model: nn.Module, x: Tensor, y: Tensor, adversary: Adversary) -> Loss:
            nonlocal calls
            calls += 1
            if calls > 1 or not {"moments", "wasserstein"} & set(self.questions):
                return objective(model, x, y, adversary)
            if self.certified:
                self._clean_pass(x)
                return objective(model, x, y, adversary)
            with self._hooked():
                return objective(model, x, y, adversary)

        def loss(count: int | None) -> Tensor:
            rows = torch.arange(min(count or len(clean), len(clean)), device=clean.device)
            recalled = memory.replay(rows)
            return objective(self.model, clean[rows], labels[rows], recalled).total

        self._loss = loss
        return measured, memory.record()

    def gradients(self, scale: float) -> None:
        """Measure the gradients of the step, before they are clipped."""
        if "gradient_norm" in self.questions:
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            whole, mean, _ = gradient_norms(grads)
            self._numbers["gradient_norm"] = whole / scale
            self._numbers["gradient_norm/mean"] = mean / scale

    def sharpness(self, *, steps: int, samples: int | None) -> Spectrum:
        """Return the largest Hessian eigenvalue of the step's loss, images fixed."""
        assert self._loss is not None
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        with (
            self._side_pass(),
            keep_statistics(self.model),
            twice_differentiable(self.model),
        ):
            loss = self._loss
            return spectrum(lambda: loss(samples), parameters, steps=steps)

    def numbers(self) -> dict[str, float]:
        """Read everything from the device in one transfer."""
        for domain, features in self._deepest.items():
            mean, variance = channel_average(measure_moments(features, sync=True))
            self._numbers[f"mean/{domain}"] = mean
            self._numbers[f"variance/{domain}"] = variance
        self._deepest = {}
        if not self._numbers:
            return {}
        values = torch.stack([value.double() for value in self._numbers.values()])
        return dict(zip(self._numbers, values.tolist(), strict=True))

    def _clean_pass(self, clean: Tensor) -> None:
        with (
            self._side_pass(),
            torch.no_grad(),
            mode(self.model, "batch"),
            route(self.model, domain="clean"),
            self._hooked(),
        ):
            self.model(clean)

    @contextmanager
    def _side_pass(self) -> Iterator[None]:
        """Keep the step's random numbers, and leave its reduced precision."""
        device = next(self.model.parameters()).device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.autocast(device.type, enabled=False):
            yield

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Take the hooks off while an attack runs: its fast path would not see them."""
        hooked = self._handles is not None
        self._remove()
        try:
            yield
        finally:
            if hooked:
                self._register()

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        self._register()
        try:
            yield
        finally:
            self._remove()

    def _register(self) -> None:
        pairs: list[tuple[nn.Module, Hook]] = []
        if "moments" in self.questions:
            pairs += [(layer, self._record_deepest) for layer in last_layers(self.model)]
        if "wasserstein" in self.questions:
            pairs += [(layer, self._record_distance) for layer in self._tracking()]
        self._handles = [layer.register_forward_pre_hook(hook) for layer, hook in pairs]

    def _remove(self) -> None:
        for handle in self._handles or ():
            handle.remove()
        self._handles = None

    def _tracking(self) -> list[nn.Module]:
        layers = feature_layers(self.model).values()
        return [layer for layer in layers if running_moments_of(layer, "clean") is not None]

    def _record_deepest(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._deepest |= self._by_domain(inputs[0])

    def _record_distance(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        for domain, rows in self._by_domain(inputs[0]).items():
            running = running_moments_of(layer, domain)
            assert running is not None
            key = f"wasserstein/{domain}"
            gap = squared_distance(measure_moments(rows, sync=True), running)
            self._numbers[key] = self._numbers[key] + gap if key in self._numbers else gap

    def _by_domain(self, features: Tensor) -> dict[Domain, Tensor]:
        """Split the rows of a pass by domain."""
        parts = current_route(self.model).split(features.detach())
        return {d: rows for d, rows in zip(DOMAINS, parts, strict=True) if len(rows)}
