r"""What one step shows of itself, from its own pass: nothing of the step is changed.

Where the objective passes the model by calling it, hooks look at the features on their way
(the attack's passes are not looked at, nor is the second pass of a gradient rule). The
bounds of certified objectives are found without calling the model; their clean map is that
of a pass with the batch's statistics, which is made for the purpose.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

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


class StepProbe:
    """Looks at one step; its numbers stay on the device until they are read."""

    def __init__(
        self, model: nn.Module, questions: Collection[str], *, certified: bool
    ) -> None:
        self.model, self.questions, self.certified = model, questions, certified
        self._numbers: dict[str, Tensor] = {}
        self._deepest: dict[Domain, Tensor] = {}
        self._open = False
        self._loss: Callable[[int | None], Tensor] | None = None

    def attach(
        self, objective: Objective, adversary: Adversary, clean: Tensor, labels: Tensor
    ) -> tuple[Objective, Adversary]:
        """Return both so that the objective's first call is looked at."""
        memory = AdversaryCache(adversary, during=self._closed)
        calls = 0

        def watched(model: nn.Module, x: Tensor, y: Tensor, foe: Adversary) -> Loss:
            nonlocal calls
            calls += 1
            if calls > 1 or not {"moments", "wasserstein"} & set(self.questions):
                return objective(model, x, y, foe)
            if self.certified:
                self._pass(x)
                return objective(model, x, y, foe)
            with self._looking():
                return objective(model, x, y, foe)

        def loss(count: int | None) -> Tensor:
            rows = torch.arange(min(count or len(clean), len(clean)), device=clean.device)
            recalled = memory.replay(rows)
            return objective(self.model, clean[rows], labels[rows], recalled).total

        self._loss = loss
        return watched, memory.record()

    def gradients(self, scale: float) -> None:
        """Look at the gradients that the step takes, before they are shortened."""
        if "gradient_norm" in self.questions:
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            whole, mean, _ = gradient_norms(grads)
            self._numbers["gradient_norm"] = whole / scale
            self._numbers["gradient_norm/mean"] = mean / scale

    def sharpness(self, *, steps: int, samples: int | None) -> Spectrum:
        """Find the largest Hessian eigenvalue of the step's own loss, its images fixed."""
        assert self._loss is not None
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        with self._aside(), keep_statistics(self.model), twice_differentiable(self.model):
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

    def _pass(self, clean: Tensor) -> None:
        with (
            self._aside(),
            torch.no_grad(),
            mode(self.model, "batch"),
            route(self.model, domain="clean"),
            self._looking(),
        ):
            self.model(clean)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Leave random numbers and reduced precision of the step alone."""
        device = next(self.model.parameters()).device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.autocast(device.type, enabled=False):
            yield

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Look away while an attack searches."""
        before, self._open = self._open, False
        try:
            yield
        finally:
            self._open = before

    @contextmanager
    def _looking(self) -> Iterator[None]:
        with ExitStack() as handles:
            for layer in last_layers(self.model) if "moments" in self.questions else ():
                handle = layer.register_forward_pre_hook(self._see_deepest)
                handles.callback(handle.remove)
            for layer in self._tracking() if "wasserstein" in self.questions else ():
                handle = layer.register_forward_pre_hook(self._see_distance)
                handles.callback(handle.remove)
            self._open = True
            try:
                yield
            finally:
                self._open = False

    def _tracking(self) -> list[nn.Module]:
        layers = feature_layers(self.model).values()
        return [layer for layer in layers if running_moments_of(layer, "clean") is not None]

    def _see_deepest(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self._open:
            self._deepest |= self._by_domain(inputs[0])

    def _see_distance(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        for domain, rows in self._by_domain(inputs[0]).items() if self._open else ():
            running = running_moments_of(layer, domain)
            assert running is not None
            key = f"wasserstein/{domain}"
            gap = squared_distance(measure_moments(rows, sync=True), running)
            self._numbers[key] = self._numbers[key] + gap if key in self._numbers else gap

    def _by_domain(self, features: Tensor) -> dict[Domain, Tensor]:
        """Split the rows of a pass into those of each domain that it has."""
        parts = current_route(self.model).split(features.detach())
        return {d: rows for d, rows in zip(DOMAINS, parts, strict=True) if len(rows)}
