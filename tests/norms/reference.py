"""Slow references, written from the papers' equations: loops over positions, no layers."""

import torch


def positions(x):
    """Return (batch * places, features), and how to go back."""
    if x.ndim == 2:
        return x, lambda y: y
    moved = x.movedim(1, -1)
    return moved.reshape(-1, x.shape[1]), lambda y: y.view(moved.shape).movedim(-1, 1)


def moments(x):
    """Mean and biased variance of each feature (sitawarin2021, Eqns. 8 and 9)."""
    flat, _ = positions(x)
    mean = sum(row for row in flat) / len(flat)
    var = sum((row - mean) ** 2 for row in flat) / len(flat)
    return mean, var, len(flat)


def moved(old_mean, old_var, x, momentum):
    """Return the running statistics after one batch: the variance is unbiased."""
    mean, var, n = moments(x)
    return (
        (1 - momentum) * old_mean + momentum * mean,
        (1 - momentum) * old_var + momentum * var * n / (n - 1),
    )


def batch_norm(x, mean, var, eps, weight, bias):
    """Ioffe & Szegedy (2015)."""
    flat, back = positions(x)
    return back((flat - mean) / (var + eps) ** 0.5 * weight + bias)


def log_density(row, mean, var):
    """Log of Eqn. 16: a product of independent Gaussians."""
    sigma = var**0.5
    terms = -((row - mean) ** 2) / (2 * var) - torch.log(sigma)
    return terms.sum() - 0.5 * len(row) * torch.log(torch.tensor(2 * torch.pi))


def dual_norm(x, clean, adversarial, eps, weight, bias):
    """Eqns. 10-20, a position at a time; also returns p(clean) of each position."""
    flat, back = positions(x)
    (mean_c, var_c), (mean_a, var_a) = clean, adversarial
    var_c, var_a = var_c + eps, var_a + eps
    rows, gates = [], []
    for row in flat:
        one, other = log_density(row, mean_c, var_c), log_density(row, mean_a, var_a)
        p = torch.sigmoid(one - other)
        hat = p * (row - mean_c) / var_c**0.5 + (1 - p) * (row - mean_a) / var_a**0.5
        rows.append(weight * hat + bias)
        gates.append(p)
    return back(torch.stack(rows)), torch.stack(gates)
