"""Models that hide a fragile network from attacks: each looks robust and is not.

``MASKED`` maps a name to a class that wraps a network. All of them but ``ripple`` and the
rounding ones decide as the network does. Used by tests and by ``benchmarks/masked.py``.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn


class Wrapped(nn.Module):
    """A network behind something."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class WithDecoy(Wrapped):
    """Has a second network of random weights, whose gradients lead nowhere."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        generator = torch.Generator().manual_seed(1)
        self.decoy = deepcopy(net)
        with torch.no_grad():
            for weight in self.decoy.parameters():
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(noise * weight.std().nan_to_num())


class GradModeDecoy(WithDecoy):
    """Answers by the decoy wherever gradients are enabled."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = (self.decoy if torch.is_grad_enabled() else self.net)(x)
        return logits


class RequiresGradDecoy(WithDecoy):
    """Answers by the decoy where the input requires a gradient."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = (self.decoy if x.requires_grad else self.net)(x)
        return logits


class DetachedWithLeak(WithDecoy):
    """The network's answer is detached; a small multiple of the decoy's leaks."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.detach()) + 1e-3 * self.decoy(x)
        return logits


class _Negate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


class NegatedGradients(Wrapped):
    """The backward pass turns the gradient around."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(_Negate.apply(x))
        return logits


class _Randomize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.randn_like(grad) * grad.std()


class RandomGradients(Wrapped):
    """The backward pass returns noise."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(_Randomize.apply(x))
        return logits


class RoundedWithLeak(WithDecoy):
    """Rounds its input to 16 levels; a small multiple of the decoy's answer leaks."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((x * 15).round() / 15) + 1e-3 * self.decoy(x)
        return logits


class RoundedAndMean(Wrapped):
    """Rounds its input; the mean pixel leaks, so that the gradient is not 0."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.flatten(1).mean(1).view(-1, *(1,) * (x.ndim - 1))
        logits: Tensor = self.net((x * 15).round() / 15 + 1e-3 * mean)
        return logits


class Ripple(Wrapped):
    """A fine ripple of the input turns the gradient around."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 0.05 * torch.sin(400 * x))
        return logits


class CallCounter(WithDecoy):
    """Counts its calls in a Python int, and answers by the decoy in two of three.

    An evaluation's clean pass and confirmation are often among the others.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = (self.decoy if x.requires_grad and self.calls > 2 else self.net)(x)
        return logits


class LateCounter(Wrapped):
    """Counts its calls, and after the first forty rounds its input."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        rounded = (x * 2).round() / 2 if self.calls > 40 else x
        logits: Tensor = self.net(rounded)
        return logits


class TinyLogits(Wrapped):
    """Logits so small that gradients lose their digits."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 1e-38 * self.net(x)
        return logits


def hashed(logits: Tensor, x: Tensor) -> Tensor:
    """Return scores with the decision of ``logits`` and nothing else: a hash of ``x``."""
    weights = torch.arange(1, x[0].numel() + 1, device=x.device, dtype=x.dtype)
    key = (1e4 * (x.detach().flatten(1) * weights.sin())).sum(1, keepdim=True)
    scores = (torch.arange(logits.shape[1], device=x.device) + 1.0) * key
    scores = scores.sin().abs()
    top = torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1])
    return scores + (1 + scores.amax(1, keepdim=True)) * top


class HashedDecoy(WithDecoy):
    """Scores are a hash of the image; gradients are the decoy's. Decisions are right."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            scores = hashed(self.net(x), x)
        decoy = self.decoy(x)
        answer: Tensor = scores + decoy - decoy.detach()
        return answer


class HashedRandom(Wrapped):
    """Scores are a hash of the image; gradients are noise."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            scores = hashed(self.net(x), x)
        leak = self.net(_Randomize.apply(x))
        answer: Tensor = scores + leak - leak.detach()
        return answer


class SmoothHash(WithDecoy):
    """Scores are a slow function that has nothing to do with the decision."""

    def forward(self, x: Tensor) -> Tensor:
        decoy = self.decoy(x)
        top = torch.nn.functional.one_hot(self.net(x.detach()).argmax(1), decoy.shape[1])
        scores = decoy.sigmoid()
        answer: Tensor = scores + 1.5 * top
        return answer


class Memory(Wrapped):
    """Remembers its queries; one like an earlier one gets the earlier one's answer."""

    patience = 0
    """Similar queries that are answered honestly."""
    leak = 1e-3
    """Of the gradient, so that there is one."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.queries: list[Tensor] = []
        self.answers: list[Tensor] = []
        self.alike: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self._one(image) for image in x])

    def _one(self, image: Tensor) -> Tensor:
        logits: Tensor = self.net(image[None])[0]
        flat = image.detach().flatten()
        if self.queries:
            distances = (torch.stack(self.queries) - flat).abs().amax(1)
            nearest = int(distances.argmin())
            if distances[nearest] < 0.3:
                self.alike[nearest] += 1
                if self.alike[nearest] > self.patience:
                    return self.answers[nearest] + self.leak * (logits - logits.detach())
                return logits
        self.queries.append(flat)
        self.answers.append(logits.detach())
        self.alike.append(0)
        return logits


class PatientMemory(Memory):
    """A memory that answers twenty similar queries honestly before it does not."""

    patience = 20


MASKED: dict[str, type[Wrapped]] = {
    "decoy where gradients are enabled": GradModeDecoy,
    "decoy where the input requires grad": RequiresGradDecoy,
    "detached, small leak": DetachedWithLeak,
    "negated gradients": NegatedGradients,
    "random gradients": RandomGradients,
    "rounded input, decoy leaks": RoundedWithLeak,
    "rounded input, mean leaks": RoundedAndMean,
    "ripple 0.05 sin(400 x)": Ripple,
    "call counter, decoy": CallCounter,
    "call counter, coarse after 40 calls": LateCounter,
    "logits x 1e-38": TinyLogits,
    "hashed scores, decoy gradients": HashedDecoy,
    "hashed scores, random gradients": HashedRandom,
    "smooth scores without information": SmoothHash,
    "memory of queries": Memory,
    "patient memory of queries": PatientMemory,
}
