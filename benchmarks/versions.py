"""Is this version as fast as another one? Both are measured side by side, in turns.

Each version runs in a process of its own, with one thread and the same work. A round times
every case in both, one right after the other; the median of the ratios is printed, with the
smallest and largest. A ratio above 1 means that this version is slower.

    git worktree add /tmp/before v0.1.0
    python benchmarks/versions.py /tmp/before [--rounds 11] [--only pgd]

Cases use what both versions have. Names that have changed are looked up in both forms.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parents[1]
Case = Callable[[], object]


def lookup(*names: str) -> Any:
    """Return the first of these dotted names that this version has."""
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            if find_spec(module) and hasattr(import_module(module), attribute):
                return getattr(import_module(module), attribute)
        except ModuleNotFoundError:
            continue
    raise AttributeError(f"this version has none of {', '.join(names)}")


def cases(folder: Path) -> dict[str, Case]:
    """Return the measured work by name, ready to run in this process."""
    import torch

    torch.manual_seed(0)
    from advnorm import attacks
    from advnorm.models import build
    from advnorm.norms import NORMS
    from advnorm.threat import Linf

    images = torch.rand(128, 1, 28, 28)
    net = build("cnn_small", shape=(1, 28, 28), classes=10, norm=NORMS["batch"]()).eval()
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    labels = net(images).argmax(1)  # else most samples are broken before an attack starts
    threat = Linf(0.01)
    return {
        "pgd-10, cnn_small": lambda: attacks.pgd(
            net, images, labels, threat, steps=10, step_size=0.025
        ),
        "apgd_ce-20, cnn_small": lambda: attacks.apgd_ce(
            net, images, labels, threat, steps=20
        ),
        "square-50, cnn_small": lambda: attacks.square(
            net, images, labels, threat, steps=50
        ),
        "fab_t-5, cnn_small": lambda: attacks.fab_t(
            net, images[:32], labels[:32], threat, steps=5
        ),
        "evaluation, pgd-20": lambda: _evaluate(net, images, labels, threat),
        **{
            f"certificate, {method}": _certificate(net, images, labels, threat, method)
            for method in ("ibp", "crown-ibp", "crown")
        },
        "training, digits.pgd, 1 epoch": lambda: _train("digits.pgd", folder),
        "advnorm --help": _help,
    }


def _evaluate(model: Any, images: Any, labels: Any, threat: Any) -> object:
    evaluate = lookup("advnorm.evaluation.evaluate", "advnorm.evaluate.evaluate")
    if find_spec("advnorm.evaluation"):
        return evaluate(model, images, labels, threat, conditions=["clean", "pgd-20"])
    return evaluate(model, images, labels, eps=threat.eps, attacks=["clean", "pgd-20"])


def _certificate(model: Any, images: Any, labels: Any, threat: Any, method: str) -> Case:
    """Return a certificate of a few images; ``crown`` takes the fewest."""
    count = {"ibp": 128, "crown-ibp": 32, "crown": 2}[method]
    x, y = images[:count], labels[:count]
    if find_spec("advnorm.bounds"):
        certify = lookup("advnorm.bounds.certify")
        return lambda: certify(model, x, y, threat, method=method)
    verify = lookup("advnorm.certify.verify")
    return lambda: verify(model, x, threat, y, method=method)


def _train(name: str, folder: Path) -> object:
    from advnorm.recipe import override
    from advnorm.recipes import find

    train = lookup("advnorm.training.train", "advnorm.train.train")
    recipe = override(find(name), ["epochs=1"])
    return train(recipe, Path(tempfile.mkdtemp(dir=folder)) / "run", device="cpu")


def _help() -> object:
    command = [sys.executable, "-m", "advnorm", "--help"]
    return subprocess.run(command, check=True, capture_output=True)


def worker() -> None:
    """Time the case that each line of standard input names."""
    sys.meta_path = [f for f in sys.meta_path if "Editable" not in str(f)]  # its own tree
    with tempfile.TemporaryDirectory() as folder:
        work = cases(Path(folder))
        print("\t".join(work), flush=True)
        for line in sys.stdin:
            start = perf_counter()
            work[line.strip()]()
            print(perf_counter() - start, flush=True)


class Version:
    """A process that measures one tree."""

    def __init__(self, tree: Path) -> None:
        paths = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(tree)],
            env={**os.environ, **paths},
            cwd=tree,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.cases = self._line().split("\t")

    def time(self, case: str) -> float:
        """Return the seconds that a case takes."""
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a version stopped: see its message above")
        return line.strip()


def main() -> None:
    """Print the ratios of this version to the other one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker()
    now, before = Version(HERE), Version(arguments.before.resolve())
    print(f"{'this version / the other':32}  median  smallest  largest")
    for case in (name for name in now.cases if arguments.only in name):
        now.time(case), before.time(case)  # warm up
        ratios = [now.time(case) / before.time(case) for _ in range(arguments.rounds)]
        print(f"{case:32}  {median(ratios):6.2f}  {min(ratios):8.2f}  {max(ratios):7.2f}")


if __name__ == "__main__":
    main()
