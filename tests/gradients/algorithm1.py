"""A small network of layers, the same network of tensors alone, and a batch."""

import torch
from torch import nn
from torch.nn import functional as F

EPS = 1e-5


def network(seed=0, norm2d=nn.BatchNorm2d, norm1d=nn.BatchNorm1d, dtype=torch.float64):
    """Two convolutions and two linear maps, with batch norms of both kinds."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        norm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2, bias=False),
        norm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 8),
        norm1d(8),
        nn.Tanh(),
        nn.Linear(8, 3),
    ).to(dtype)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
    return model


def batch(size, seed=1, dtype=torch.float64):
    """Images with means far from zero, so that a shifted mean matters."""
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(size, 1, 7, 7, generator=draw, dtype=dtype) + 0.5
    return images, torch.randint(3, (size,), generator=draw)


def straight(parameters, thetas, images, *, detached=False):
    """Logits of :func:`network` from tensors: Eq. 3 is written out, with no layers."""
    p = iter(parameters)
    x = F.conv2d(images, next(p), next(p))
    x = _eq3(x, next(p), next(p), thetas[0], detached).relu()
    x = F.conv2d(x, next(p), stride=2)
    x = _eq3(x, next(p), next(p), thetas[1], detached).relu()
    x = x.flatten(1) @ next(p).T + next(p)
    x = _eq3(x, next(p), next(p), thetas[2], detached).tanh()
    return x @ next(p).T + next(p)


def _eq3(x, gamma, beta, theta, detached):
    dims, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    gamma, beta, of_mean, of_deviation = (
        v.view(shape) for v in (gamma, beta, theta[0], theta[1])
    )
    mu = x.mean(dims, keepdim=True)
    sigma = ((x - mu) ** 2).mean(dims, keepdim=True).add(EPS).sqrt()
    ratio = mu / sigma
    fixed = ratio.detach() if detached else ratio
    return gamma * (1 + of_deviation) * ((x - mu) / sigma - of_mean * fixed) + beta


def algorithm1(model, images, labels, *, eps, n_second, groups, rho=0.0, detached=False):
    """Algorithm 1 of apart2022, line by line, for :func:`network`; returns g."""
    phi = [p.detach().clone().requires_grad_() for p in model.parameters()]
    theta = [torch.zeros(2, size, dtype=torch.float64) for size in (4, 6, 8)]
    theta = [t.requires_grad_() for t in theta]
    m = len(images)
    loss = F.cross_entropy(straight(phi, theta, images), labels)
    both = torch.autograd.grad(loss, [*phi, *theta])
    g_phi, g_theta = both[: len(phi)], both[len(phi) :]
    theta = [eps * g.sign() for g in g_theta]
    if rho:
        length = sum((g**2).sum() for g in g_phi).sqrt()
        moved = [p.detach() + rho * g / length for p, g in zip(phi, g_phi, strict=True)]
        phi = [p.requires_grad_() for p in moved]
    h_phi = [torch.zeros_like(p) for p in phi]
    size = n_second // groups
    for j in range(groups):
        rows = slice(j * size, (j + 1) * size)
        logits = straight(phi, theta, images[rows], detached=detached)
        loss = F.cross_entropy(logits, labels[rows])
        grads = torch.autograd.grad(loss, phi)
        h_phi = [h + g / groups for h, g in zip(h_phi, grads, strict=True)]
    total = m + n_second
    return [m / total * g + n_second / total * h for g, h in zip(g_phi, h_phi, strict=True)]
