"""What each of two ranks computes; a module of its own, so that a new process finds it."""

from pathlib import Path

import torch
import torch.distributed as dist

from advnorm import norms

CASES = [
    ("batch", {}),
    ("mixture", {}),
    ("dual", {}),
    ("affine", {}),
    ("borrowed", {"lender": "clean"}),
    ("borrowed", {"lender": "adversarial"}),
]
SHAPES = [(8, 3), (8, 3, 2, 2)]
CLEAN = 4  # of 8 rows; each rank has two of each domain


def layer(name, options, sync):
    domain_norm = norms.NORMS[name](sync=sync, **options)(3).double()
    with torch.no_grad():
        for parameter in domain_norm.parameters():
            parameter.copy_(torch.linspace(0.5, 2.0, 3))
    return domain_norm


def batch(shape):
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x[CLEAN:] += 0.5
    return x, torch.randn(shape, generator=generator, dtype=torch.float64)


def measure(domain_norm, x, weights, clean):
    """Return output, input gradient, parameter gradients and running statistics."""
    x = x.clone().requires_grad_()
    with norms.route(domain_norm, clean=clean), norms.likelihood(domain_norm) as terms:
        y = domain_norm(x)
    # The likelihood is a mean over this rank's rows: weigh it by their number.
    loss = (y * weights).sum() + sum(terms, start=y.new_zeros(())) * len(x)
    grads = torch.autograd.grad(loss, [x, *domain_norm.parameters()])
    return [y.detach(), grads[0], *grads[1:], *domain_norm.buffers()]


def rank(index, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=index, world_size=2
    )
    results = {}
    for number, (name, options) in enumerate(CASES):
        for shape in SHAPES:
            x, weights = batch(shape)
            rows = [2 * index, 2 * index + 1, CLEAN + 2 * index, CLEAN + 2 * index + 1]
            measured = measure(layer(name, options, True), x[rows], weights[rows], 2)
            results[number, len(shape)] = measured
    torch.save(results, f"{folder}/{index}.pt")
    dist.destroy_process_group()
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if "gloo" in name], "a group's threads are left"
