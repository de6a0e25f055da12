"""The gradient of images through small public networks, beside that of the library alone.

    python benchmarks/image_gradients.py --public AUTO_LIRPA [--rounds 25] [--threads 1]

``mnist_a_adv`` and ``kw_mnist`` of auto_LiRPA's ``examples/vision/pretrained``: a forward
pass and the gradient of MNIST images (``ADVNORM_DATA``), as an attack makes them, with and
without :mod:`advnorm.image_gradients` in turn. Processor time of all threads.
"""

import argparse
from pathlib import Path
from statistics import median
from time import process_time

import torch
from public_attacks import PRETRAINED, PUBLIC, SAMPLES, spread
from public_models import load_public
from torch import Tensor

from advnorm.allocator import freed_memory_kept
from advnorm.attacks import LogitsFn
from advnorm.evaluation.engine import logits_of
from advnorm.model_state import frozen_parameters


def microseconds(logits_fn: LogitsFn, images: Tensor) -> float:
    """Return the processor time of a pass and its gradient, for each image."""
    start, x = process_time(), images.detach().requires_grad_()
    torch.autograd.grad(logits_fn(x).sum(), x)
    return (process_time() - start) / len(images) * 1e6


def main() -> None:
    """Print a row for each network and batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print("| network | images | library, us an image | ours | ratio |\n" + "|" + "---|" * 5)
    for name in PUBLIC:
        model, images, _ = load_public(asked.public / PRETRAINED / f"{name}.pth", SAMPLES)
        faster = logits_of(model)
        with freed_memory_kept(), frozen_parameters(model):
            for count in (64, 191, 382):
                x = images[torch.arange(count) % len(images)]
                pairs = [
                    (microseconds(model, x), microseconds(faster, x))
                    for _ in range(asked.rounds + 3)
                ][3:]
                times = [median(column) for column in zip(*pairs, strict=True)]
                ratio = spread([a / b for a, b in pairs])
                print(f"| {name} | {count} | {times[0]:.1f} | {times[1]:.1f} | {ratio} |")


if __name__ == "__main__":
    main()
