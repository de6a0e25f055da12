r"""Adapt the batch norms of a trained model to unlabelled test data.

The running statistics are estimated anew: the average over batches of the moments that
each layer sees while all layers use the batch's (AdaBN, Li et al., 2018; Schneider et al.,
2020). Before that, gradient steps on the affine parameters of the batch norms may lower the
mean entropy of the predictions (TENT, Wang et al., 2021, arXiv:2006.10726):

.. math::
    \min_{\gamma, \beta} \; -\frac1n \sum_i \sum_k p_k(x_i) \log p_k(x_i)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import cycle, islice
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.model_output import read_logits
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.norms.dual import DualNorm
from advnorm.norms.mode import batch_norms, mode
from advnorm.norms.placement import norm_parameters


def recalibrate(
    model: nn.Module,
    images: Tensor,
    *,
    batch_size: int = 250,
    entropy_steps: int = 0,
    lr: float = 1e-3,
) -> nn.Module:
    """Return a copy of ``model`` whose batch norms are adapted to ``images``.

    The copy has fixed statistics again, so its predictions do not depend on the batch: it
    is evaluated and attacked as any model. Who adapts to images of an adversary adapts to
    the adversary's choice: attack that with ``evaluate(..., statistics="batch")``.

    >>> model, images = nn.Sequential(nn.BatchNorm1d(1)), torch.tensor([[0.0], [4.0]])
    >>> recalibrate(model, images)[0].running_mean
    tensor([2.])

    Args:
        model: Its training mode, weights and statistics stay as they are.
        images: Test images without labels, shape ``(n, ...)``.
        batch_size: Images of a batch, at most; all batches are almost equally large.
        entropy_steps: Steps of Adam that lower the entropy, one batch each, in turn.
        lr: The learning rate of these steps.
    """
    if not batch_norms(model):
        raise ValueError(
            "the model has no batch norm, so there is nothing to recalibrate: use it as it "
            "is"
        )
    if any(isinstance(layer, DualNorm) for layer in model.modules()):
        raise NotImplementedError(
            "a dual norm weighs two domains, and test data say nothing of their domain: "
            "collapse the model to one branch, or recalibrate another norm"
        )
    if batch_size < 2 or entropy_steps < 0 or not lr > 0:
        raise ValueError(
            f"recalibrate needs batch_size >= 2, entropy_steps >= 0 and lr > 0, not "
            f"{batch_size}, {entropy_steps} and {lr:g}"
        )
    copy = deepcopy(model)
    batches = images.tensor_split(ceil(len(images) / batch_size) or 1)
    with eval_mode(copy), torch.inference_mode(mode=False):
        if entropy_steps:
            _lower_entropy(copy, list(islice(cycle(batches), entropy_steps)), lr)
        with mode(copy, "train"), torch.no_grad(), _measured_anew(batch_norms(copy)):
            for batch in batches:
                copy(batch)
    return copy


def entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy of the predictions, in nats.

    >>> entropy(torch.zeros(2, 4)).exp()
    tensor(4.)
    """
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean()


def _lower_entropy(model: nn.Module, batches: Sequence[Tensor], lr: float) -> None:
    """Take a step of Adam a batch, on the parameters of the batch norms."""
    parameters = [p for layer in batch_norms(model) for p in norm_parameters(layer)]
    if not parameters:
        raise ValueError(
            "the batch norms have no affine parameters to adapt: leave out entropy_steps"
        )
    optimizer = torch.optim.Adam(parameters, lr=lr)
    trained = [parameter.requires_grad for parameter in parameters]
    with mode(model, "batch"), frozen_parameters(model), torch.enable_grad():
        for parameter in parameters:
            parameter.requires_grad_(True)
        for batch in batches:
            loss = entropy(read_logits(model(batch)))
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    for parameter, flag in zip(parameters, trained, strict=True):
        parameter.grad = None
        parameter.requires_grad_(flag)


@contextmanager
def _measured_anew(layers: Sequence[_BatchNorm]) -> Iterator[None]:
    """Average over the batches of the block; a layer without any keeps its statistics."""
    before = [(layer, layer.momentum, deepcopy(layer._buffers)) for layer in layers]
    for layer in layers:
        layer.momentum = None
        layer.reset_running_stats()
    try:
        yield
    finally:
        for layer, momentum, buffers in before:
            layer.momentum = momentum
            count = layer.num_batches_tracked
            if count is not None and not count:
                layer._buffers.update(buffers)
