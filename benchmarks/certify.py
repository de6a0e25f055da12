"""Certificates beside auto_LiRPA: whether the margins agree, and what they cost.

Three small networks are trained on digits (plain, with batch norm, residual with batch
norm), and their margins by ibp, crown-ibp and crown are compared in float64. Then both
are timed on the small CNN of sridhar2021 (Table 4) with images of MNIST's size, trained for
a moment on enlarged digits, or on the network and test images of a run folder; each
measurement is a process of its own, which gives the peak of its memory. auto_LiRPA has to
be importable (it is no dependency); without it only our own numbers are printed.

    python benchmarks/certify.py [--run RUN] [--eps 0.05] [--threads 2] [--images 1000]

Each side bounds all images, tracing or wrapping included; a measurement is the least of
``--rounds`` calls after one that warms up, and both sides take turns in one process. Ours
splits the images itself. auto_LiRPA takes what it is given: all of them in one call, and
then, for a user who splits by hand, as many at a time as suit it best (the best of
``BATCHES``, measured); crown takes parts alone. What wrapping costs it is printed, and what
our verdicts cost without the margins: a slower method is tried on what is left.
``bare`` is the time of the convolutions and products of an ibp walk alone, on the whole
network: two passes each. Then a step of IBP training is timed beside a plain one, and the
standard suite behind certificates beside the official AutoAttack (``--official CHECKOUT``).
``--only`` names one part.
"""

import argparse
import resource
import subprocess
import sys
import warnings
from math import nan
from pathlib import Path
from time import perf_counter

import torch
from certified_first import first, steps
from peers import official_from
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import norms
from advnorm.bounds import METHODS, is_certified, margin_bounds
from advnorm.models import Standardize, build
from advnorm.threat import Linf

PEER = {"ibp": "IBP", "crown-ibp": "CROWN-IBP", "crown": "CROWN"}
MIN_SPEEDUP = {"ibp": 10, "crown-ibp": 5, "crown": 2}
BATCHES = {"ibp": (50, 100, 250), "crown-ibp": (50, 100, 250), "crown": (50,)}


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        """Return the sum."""
        return input + self.two(torch.relu(self.norm(self.one(input))))


class TwoStepStandardize(nn.Module):
    """A standardization in two operations."""

    def __init__(self, layer: Standardize) -> None:
        super().__init__()
        self.register_buffer("mean", layer.mean.view(1, -1, 1, 1))
        self.register_buffer("std", layer.std.view(1, -1, 1, 1))

    def forward(self, input: Tensor) -> Tensor:
        """Return the standardized images."""
        return (input - self.mean) / self.std


def networks() -> dict[str, nn.Module]:
    """Return three untrained networks for 8x8 images."""
    torch.manual_seed(0)
    return {
        "plain": nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ),
        "batch norm": nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ),
        "residual": nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            Residual(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 10),
        ),
    }


def digits(size: int = 8) -> tuple[Tensor, Tensor]:
    """Return the embedded digits, enlarged to a size."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return F.interpolate(images, size), torch.tensor(data.target)


def train(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> nn.Module:
    """Train with noise for some steps of 100 images."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        rows = torch.randint(len(images), (100,))
        optimizer.zero_grad()
        x = images[rows] + 0.1 * torch.randn_like(images[rows])
        F.cross_entropy(model(x), labels[rows]).backward()
        optimizer.step()
    return model.eval()


def timed_network(run: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the network that is timed, with images and labels."""
    if run is not None:
        from advnorm.recipe import from_yaml
        from advnorm.records import Run
        from advnorm.runs.load import load_trained
        from advnorm.training.components import load_data

        folder = Run.open(run)
        recipe = from_yaml(folder.recipe_text())
        data = load_data(recipe, root=None)
        model, _, _ = load_trained(folder, recipe, data, weights="best", warnings=[])
        order = torch.arange(min(count, len(data.test)))
        batch = next(data.test.batches(order, batch_size=count, device=torch.device("cpu")))
        return _plain(model.eval(), batch.images[:1]), batch.images, batch.labels
    torch.manual_seed(0)
    images, labels = digits(28)
    model = build("cnn_small", shape=(1, 28, 28), classes=10, norm=norms.NORMS["none"]())
    return train(model, images, labels, 60), images[:count], labels[:count]


def _plain(model: nn.Module, image: Tensor) -> nn.Module:
    """Return the network with norms and a standardization that the peer knows."""
    has_norms = any(isinstance(layer, _BatchNorm) for layer in model.modules())
    for name, layer in model.named_children():
        if isinstance(layer, Standardize):
            setattr(model, name, TwoStepStandardize(layer))
    model(image)  # a norm knows its dimensions once it has seen an input
    return norms.collapse(model).eval() if has_norms else model


def peer(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    eps: float,
    method: str,
    *,
    cut: bool = False,
    batch: int = 100,
    conv_mode: str = "patches",
) -> Tensor:
    """Return auto_LiRPA's margins, all columns, the label's 0; the model is wrapped once.

    ``cut`` has its crown cut bounds with intervals as ours does
    (``compare_crown_with_ibp``), for the comparison of margins: by default its result for
    an image depends on the batch. It is timed without, as it comes.
    """
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    wrapped = BoundedModule(
        model,
        torch.zeros_like(images[:batch]),
        bound_opts={"compare_crown_with_ibp": cut, "conv_mode": conv_mode},
        device="cpu",
    )
    eye, parts = torch.eye(model(images[:1]).shape[1], dtype=images.dtype), []
    for x, y in zip(images.split(batch), labels.split(batch), strict=True):
        low, high = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
        ball = PerturbationLpNorm(norm=float("inf"), eps=eps, x_L=low, x_U=high)
        bound = wrapped.compute_bounds(
            x=(BoundedTensor(x, ball),),
            C=eye[y].unsqueeze(1) - eye,
            method=PEER[method],
            bound_upper=False,
        )
        parts.append(bound[0])
    return torch.cat(parts)


def agreement() -> float:
    """Print the largest relative difference of margins; return it."""
    images, labels = digits()
    worst = 0.0
    for name, model in networks().items():
        torch.manual_seed(0)
        train(model, images, labels, 300).double()
        x, y, eps = images[:20].double(), labels[:20], 0.03
        for method in METHODS:
            with torch.no_grad():
                ours = margin_bounds(model, x, y, Linf(eps), method=method)
                theirs = peer(model, x, y, eps, method, cut=method == "crown")
            difference = float(((ours - theirs).abs() / theirs.abs().clamp(min=1e-3)).max())
            worst = max(worst, difference)
            print(f"{name}, {method}: mean margin {ours.mean():.4f}, largest relative "
                  f"difference {difference:.1e}")  # fmt: skip
    return worst


def one(arguments: argparse.Namespace) -> None:
    """Time one method, sides in turn; print peak megabytes and each one's least time."""
    sides, method, batch = arguments.one.split(":")
    torch.set_num_threads(arguments.threads)
    model, images, labels = timed_network(arguments.run, arguments.images)
    spent: dict[str, list[float]] = {side: [] for side in sides.split("+")}
    with torch.no_grad():
        for _ in range(arguments.rounds + 1):
            for side, seconds in spent.items():
                begin = perf_counter()
                options = {"batch": int(batch)} if side in ("peer", "wrap") else {}
                SIDES[side](model, images, labels, arguments.eps, method, **options)
                seconds.append(perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(peak, *(min(seconds[1:] or seconds) for seconds in spent.values()))


def wrap(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, method: str, *, batch: int
) -> None:
    """Wrap the model as the peer does, and compute nothing."""
    from auto_LiRPA import BoundedModule

    BoundedModule(model, torch.zeros_like(images[:batch]), device="cpu")


def bare(model: nn.Module, images: Tensor, labels: Tensor, eps: float, method: str) -> None:
    """Apply the convolutions and linear layers alone, twice each, 500 images at a time."""
    for x in images.split(500):
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                x = x.flatten(1) if isinstance(layer, nn.Linear) else x
                layer(x)
                x = layer(x)


def ours(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, method: str
) -> Tensor:
    """Return our margins."""
    return margin_bounds(model, images, labels, Linf(eps), method=method)


def verdicts(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, method: str
) -> Tensor:
    """Return our verdicts alone, which the cheapest method gives that can."""
    return is_certified(model, images, labels, Linf(eps), method=method)


SIDES = {"peer": peer, "ours": ours, "wrap": wrap, "bare": bare, "verdicts": verdicts}


def timed(
    arguments: argparse.Namespace, sides: str, method: str, batch: int
) -> list[float]:
    """Measure in a process of its own: the peak, and the seconds of each side."""
    is_crown = method == "crown"
    command = [sys.executable, "-W", "ignore", __file__]
    command += ["--one", f"{sides}:{method}:{batch}"]
    command += ["--images", str(arguments.crown_images if is_crown else arguments.images)]
    command += ["--rounds", str(0 if is_crown else arguments.rounds)]
    command += ["--eps", str(arguments.eps), "--threads", str(arguments.threads)]
    command += ["--run", str(arguments.run)] if arguments.run else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{sides} failed on {method}: {done.stderr.splitlines()[-1:]}")
        return [nan] * (2 + sides.count("+"))
    return [float(word) for word in done.stdout.split()[-2 - sides.count("+") :]]


def speed(arguments: argparse.Namespace, has_peer: bool) -> None:
    """Print times, ratios and peaks of memory."""
    for method in arguments.methods.split(","):
        count = arguments.crown_images if method == "crown" else arguments.images
        peak, seconds = timed(arguments, "ours", method, 0)
        if has_peer:
            against(arguments, method, count, peak)
        else:
            print(f"{method}, {count} images: ours {seconds:.3f} s, peak {peak:.0f} MB")
    print(f"bare layers of ibp {timed(arguments, 'bare', 'ibp', 0)[1]:.3f} s", flush=True)


def against(arguments: argparse.Namespace, method: str, count: int, peak: float) -> None:
    """Print both sides' times, in turn in one process: all at once, and in parts."""
    tried = {
        batch: timed(arguments, "ours+peer+wrap+verdicts", method, batch)[1:]
        for batch in (*BATCHES[method], *([count] if method != "crown" else []))
    }
    best = min(BATCHES[method], key=lambda batch: tried[batch][1])
    for batch in dict.fromkeys([max(tried), best]):
        seconds, theirs, wrapping, alone = tried[batch]
        more = timed(arguments, "peer", method, batch)[0]
        print(f"{method}, {count} images: ours {seconds:.3f} s; auto_LiRPA {theirs:.3f} s, "
              f"{batch} at a time, of it wrapping {wrapping:.3f} s; ratio "
              f"{theirs / seconds:.1f} (limit {MIN_SPEEDUP[method]}); peak {peak:.0f} / "
              f"{more:.0f} MB; verdicts alone {alone:.3f} s, ratio {theirs / alone:.1f}",
              flush=True)  # fmt: skip


def arguments_of() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--eps", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--crown-images", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--first-images", type=int, default=100)
    parser.add_argument("--official", type=Path, help="a checkout of the AutoAttack")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["agreement", "speed", "step", "first"])
    return parser.parse_args()


def main() -> None:
    """Compare, then time."""
    warnings.simplefilter("ignore")
    arguments = arguments_of()
    if arguments.one:
        one(arguments)
        return
    try:
        import auto_LiRPA  # noqa: F401

        has_peer = True
    except ImportError:
        has_peer = False
        print("auto_LiRPA cannot be imported here: our own numbers alone")
    wanted = [arguments.only] if arguments.only else ["agreement", "speed", "step", "first"]
    if has_peer and "agreement" in wanted:
        print(f"largest relative difference of all: {agreement():.1e} (limit 1e-4)")
    if "speed" in wanted:
        speed(arguments, has_peer)
    torch.set_num_threads(arguments.threads)
    if "step" in wanted:
        steps()
    if "first" in wanted:
        official_from(arguments.official)
        first(*timed_network(arguments.run, arguments.first_images))


if __name__ == "__main__":
    main()
