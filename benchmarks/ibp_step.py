"""What a step of IBP training costs, in plain training steps.

The small CNN of sridhar2021 (Table 4) on random images of MNIST's size, batches of 100,
Adam; a step is objective, backward pass and optimizer. Both kinds take turns in one process
and the median of the ratios is printed. Three passes (clean, centre, radius) make 3.0; the
aim is at most 3.2.

    python benchmarks/ibp_step.py [--rounds 40] [--threads 1]
"""

import argparse
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from advnorm import models, norms
from advnorm.objectives import OBJECTIVES, Adversary
from advnorm.threat import Linf


def seconds(
    name: str, model: nn.Module, batch: tuple[Tensor, Tensor], optimizer: torch.optim.Adam
) -> float:
    """Return the time of one step."""
    start = perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = OBJECTIVES[name](model, *batch, Adversary(None, threat=Linf(0.1)))
    loss.total.backward()
    optimizer.step()
    return perf_counter() - start


def main() -> None:
    """Print a line a norm."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    batch = torch.rand(100, 1, 28, 28), torch.randint(0, 10, (100,))
    for norm in ("none", "batch"):
        model = models.build(
            "cnn_small",
            shape=(1, 28, 28),
            classes=10,
            norm=norms.NORMS[norm](),
            standardize=models.Standardize([0.1307], [0.3081]),
            options={},
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
        times = [
            [seconds(name, model, batch, optimizer) for name in ("standard", "ibp")]
            for _ in range(arguments.rounds + 5)
        ][5:]
        plain, ibp = (1e3 * median(column) for column in zip(*times, strict=True))
        ratio = median(two / one for one, two in times)
        print(f"norm {norm:<5}  plain {plain:.1f} ms  ibp {ibp:.1f} ms  ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
