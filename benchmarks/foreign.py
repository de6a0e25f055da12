"""Foreign architectures: which steps of the product each passes, and what is refused.

    python benchmarks/foreign.py --peers FOLDER [--out FOLDER] [--only NAME ...]
    python benchmarks/foreign.py --page FILE [--out FOLDER] [--only NAME ...]

``--peers`` (or ``ADVNORM_PEERS``) has checkouts of the repositories of ``FOLDERS``; timm
and transformers are imported where they are installed. Each architecture runs in a process
of its own, one at a time, and leaves a JSON file in ``--out``; one that is there is not run
again. ``--page`` runs nothing: it writes what is there as a page of Markdown. An
architecture takes six steps:

1. convert: to every norm; logits in evaluation are compared where they must be the same.
2. evaluate: clean, FGSM and PGD-3. 3. audit: all checks, with PGD-5 as the strong attack.
4. train: two epochs with mixture norms, stopped in the middle and resumed; weights must be
   those of a run that was not stopped, bit by bit.
5. export to ONNX, run with batches of 1 and 7; and to torch.
6. load: ``advnorm.load`` and the exported files give the same logits.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import advnorm
from advnorm import norms
from advnorm.model_output import read_logits
from advnorm.progress import Quiet
from advnorm.recipe import Recipe, override
from advnorm.records import Environment
from advnorm.training import StoppedError

FOLDERS = {
    "pytorch-cifar": "pytorch-cifar/models",
    "robustbench": "robustbench/robustbench/model_zoo",
    "auto_LiRPA": "auto_LiRPA/examples/vision/models",
    "apart": "apart/main/models",
    "fixup": "bn-advex-zhang-fixup/cifar/models",
    "adv_lib": "adversarial-library",
    "timm": "",
    "transformers": "",
}
"""Where each source has its modules, inside of the folder of peers."""
KEPT = ("batch", "mixture", "dual", "borrowed", "affine")
"""Norms that compute in evaluation what the model did."""
SHAPE, CLASSES = (3, 32, 32), 10
STEPS = ("convert", "evaluate", "audit", "train", "export", "load")
TOLERANCE = 1e-3
"""The largest difference of logits, relative to their spread over images."""
LEAST_SPREAD = 1e-2
"""Logits that vary less over images would hide a difference behind rounding."""
SECONDS = 600
"""The most time of the processor that an architecture takes, for all of its steps."""
WAIT = 4 * 3600
"""The most seconds that one is waited for, on a machine that is busy."""


PRELOADED = ("onnxruntime", "onnxscript", "torch.onnx", "torch.export", "torch._dynamo")
"""What exports need, imported once for all of the processes."""
HEAD = """\
# Foreign architectures

Networks of other projects, taken through every step of the product. Written by `python \
benchmarks/foreign.py --page docs/results/foreign.md` from the results of `python \
benchmarks/foreign.py --peers FOLDER`. The networks are small ones of their projects' \
code, with random weights: a step that passes says that the network is taken, not how \
robust it is. timm imports names of torchvision, which was not installed: stand-ins took \
their place, which raise an error where they are called.

- convert: how many norms of `advnorm list norms` the network was converted to, and the \
largest difference of logits in evaluation, relative to their spread over images, where \
the method promises the same (at most 1e-3).
- evaluate: of 8 samples, 2 with a wrong label: right, and robust against FGSM and PGD-3. \
audit: all checks.
- train: two epochs, stopped in the middle and resumed; the weights are bitwise those of \
a run that was not stopped. With mixture norms, where the network can be converted.
- export: to ONNX and torch. load: both files with batches of 1 and 7; the largest \
difference of logits, relative to their spread.

"""


class Architecture(NamedTuple):
    """A network of another project: ``build`` makes it from what ``module`` has."""

    source: str
    module: str
    build: Callable[[Any], nn.Module]


def _transformers(kind: str, **options: object) -> Architecture:
    def network(m: Any) -> nn.Module:
        config = getattr(m, f"{kind}Config")(num_labels=CLASSES, **options)
        model: nn.Module = getattr(m, f"{kind}ForImageClassification")(config)
        return model

    return Architecture("transformers", "transformers", network)


def _timm(name: str, **options: object) -> Architecture:
    def network(m: Any) -> nn.Module:
        model: nn.Module = m.create_model(name, num_classes=CLASSES, **options)
        return model

    return Architecture("timm", "timm", network)


def _frozen(m: Any) -> nn.Module:
    timm = import_module("timm")
    model: nn.Module = timm.create_model("mobilenetv3_small_050", num_classes=CLASSES)
    frozen: nn.Module = m.freeze_batch_norm_2d(model)
    return frozen


def _normalized(m: Any) -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    head = [nn.Flatten(), nn.Linear(32, CLASSES)]
    return nn.Sequential(m.ImageNormalizer((0.5,) * 3, (0.25,) * 3), *layers, *head)


EFFICIENT = {
    "num_blocks": [1, 1, 2],
    "expansion": [1, 4, 4],
    "out_channels": [8, 16, 24],
    "kernel_size": [3, 3, 5],
    "stride": [1, 2, 2],
    "dropout_rate": 0.2,
    "drop_connect_rate": 0.2,
}
REGNET = {
    "depths": [1, 1, 2, 1],
    "widths": [16, 24, 32, 48],
    "strides": [1, 2, 2, 2],
    "group_width": 8,
    "bottleneck_ratio": 1,
    "se_ratio": 0.25,
}
DUAL_PATH = {
    "in_planes": (32, 32, 64, 64),
    "out_planes": (32, 64, 64, 128),
    "num_blocks": (1, 1, 1, 1),
    "dense_depth": (4, 8, 8, 16),
}
SMALL = {"num_channels": 3, "hidden_sizes": [8, 16], "depths": [1, 1]}
VIT = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
ONES = [1, 1, 1, 1]
NARROW = (8, 16, 16, 32)
Builders = dict[str, tuple[str, Callable[[Any], nn.Module]]]
CIFAR: Builders = {
    "VGG11": ("vgg", lambda m: m.VGG("VGG11")),
    "LeNet": ("lenet", lambda m: m.LeNet()),
    "ResNet": ("resnet", lambda m: m.ResNet(m.BasicBlock, ONES)),
    "PreActResNet": ("preact_resnet", lambda m: m.PreActResNet(m.PreActBlock, ONES)),
    "SENet": ("senet", lambda m: m.SENet(m.PreActBlock, ONES)),
    "DenseNet": ("densenet", lambda m: m.DenseNet(m.Bottleneck, [1, 2, 2, 1], 8)),
    "MobileNet": ("mobilenet", lambda m: m.MobileNet()),
    "MobileNetV2": ("mobilenetv2", lambda m: m.MobileNetV2()),
    "EfficientNet": ("efficientnet", lambda m: m.EfficientNet(EFFICIENT)),
    "RegNetY": ("regnet", lambda m: m.RegNet(REGNET)),
    "ShuffleNetV2": ("shufflenetv2", lambda m: m.ShuffleNetV2(0.5)),
    "PNASNet": ("pnasnet", lambda m: m.PNASNet(m.CellB, num_cells=1, num_planes=8)),
    "DPN": ("dpn", lambda m: m.DPN(DUAL_PATH)),
    "ResNeXt": ("resnext", lambda m: m.ResNeXt([1, 1, 1], 2, 8)),
}
ROBUSTBENCH: Builders = {
    "WideResNet": ("wide_resnet", lambda m: m.WideResNet(10, widen_factor=1)),
    "BoostingWRN": ("boosting_wide_resnet", lambda m: m.BoostingWideResNet(10, 1)),
    "DMWideResNet": (
        "dm_wide_resnet",
        lambda m: m.DMWideResNet(depth=10, width=1, activation_fn=m.Swish),
    ),
    "PAF-WRN": (
        "paf_wide_resnet",
        lambda m: m.PAF_WideResNet(m.PSSiLU(), depth=10, widen_factor=1),
    ),
    "CifarResNeXt": (
        "resnext",
        lambda m: m.CifarResNeXt(m.ResNeXtBottleneck, 11, 2, 16, CLASSES),
    ),
    "RobustResNet": (
        "robust_resnet",
        lambda m: m.PreActResNet(CLASSES, (16, 16, 32, 64), (1, 1, 1)),
    ),
    "ConvNeXtV2": (
        "convnext_v2",
        lambda m: m.ConvNeXtV2(3, CLASSES, depths=ONES, dims=[8, 16, 24, 32]),
    ),
    "MeanSparse": (
        "Meansparse_wrn_94_16",
        lambda m: m.MeanSparse_DMWideResNet(depth=10, width=1),
    ),
}
LIRPA: Builders = {
    "LiRPA ResNet": ("resnet18", lambda m: m.ResNet18(in_planes=8)),
    "LiRPA ResNet5": ("vnncomp_resnet", lambda m: m.resnet2b()),
    "LiRPA DenseNet": ("densenet", lambda m: m.Densenet_cifar_32()),
    "LiRPA residual": ("resnet", lambda m: m.model_resnet(mult=2)),
    "LiRPA ResNeXt": ("resnext", lambda m: m.ResNeXt([1, 1, 1], 2, 8)),
}
ARCHITECTURES: dict[str, Architecture] = {
    **{name: Architecture("pytorch-cifar", *how) for name, how in CIFAR.items()},
    **{
        name: Architecture("robustbench", f"architectures.{module}", network)
        for name, (module, network) in ROBUSTBENCH.items()
    },
    **{name: Architecture("auto_LiRPA", *how) for name, how in LIRPA.items()},
    "APART WRN": Architecture("apart", "wideresnet", lambda m: m.WideResNet16_2()),
    "Fixup": Architecture("fixup", "fixup_resnet_cifar", lambda m: m.fixup_resnet20()),
    "ResNet-20": Architecture("fixup", "resnet_cifar", lambda m: m.resnet20()),
    "adv_lib normalizer": Architecture("adv_lib", "adv_lib.utils.utils", _normalized),
    "timm ResNet": _timm("resnet10t", channels=NARROW),
    "timm ResNetV2 (BatchNormAct)": _timm("resnetv2_18", channels=NARROW),
    "timm MobileNetV3": _timm("mobilenetv3_small_050"),
    "timm TinyNet": _timm("tinynet_e"),
    "timm RepGhostNet": _timm("repghostnet_050"),
    "timm ReXNet": _timm("rexnet_100", width_mult=0.25),
    "timm NF-ResNet": _timm("nf_resnet26", channels=(64, 64, 64, 64)),
    "timm ConvNeXt": _timm("convnext_atto", dims=NARROW, depths=tuple(ONES)),
    "timm ViT": _timm(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2
    ),
    "timm frozen": Architecture("timm", "timm.utils.model", _frozen),
    "HF ResNet": _transformers("ResNet", embedding_size=8, layer_type="basic", **SMALL),
    "HF RegNet": _transformers("RegNet", embedding_size=8, groups_width=4, **SMALL),
    "HF MobileNetV2": _transformers("MobileNetV2", depth_multiplier=0.25, image_size=32),
    "HF ViT": _transformers("ViT", **VIT),
    "HF BiT": _transformers("Bit", embedding_size=8, num_groups=4, **SMALL),
}


class Result(NamedTuple):
    """What became of a step: ``passed``, ``refused`` or ``failed``, and the facts."""

    status: str
    text: str
    seconds: float = 0.0


def build(name: str, peers: Path) -> nn.Module:
    """Import the module of an architecture and build it."""
    source, module, network = ARCHITECTURES[name]
    if FOLDERS[source]:
        sys.path.insert(0, str(peers / FOLDERS[source]))
    torch.manual_seed(0)
    return network(import_module(module))


def warm(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Make the logits of an untrained network depend on the images.

    Norms get parameters that matter and statistics that fit what they see, and the last
    layer is scaled. Else any two networks with the same biases would nearly agree.
    """
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif not parameter.any():  # the last layers of Fixup
                parameter.normal_(0, parameter[0].numel() ** -0.5)
        _fit_statistics(model, shape)
        for name, value in model.named_buffers():
            if name.endswith(("running_mean", "running_var")) and len(value.unique()) == 1:
                value.add_(0.1 * torch.rand_like(value))  # of a frozen norm
    model.eval()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    heads = [m for m in layers if len(m.weight) == CLASSES]  # a convolution, in ResNetV2
    heads[-1].weight.data.div_(spread(logits_of(model, varied(16, shape))))


def _fit_statistics(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Set running statistics to those of the last of two batches."""
    model.train()
    layers = [m for m in model.modules() if getattr(m, "momentum", None) is not None]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0
    for _ in range(2):
        model(varied(16, shape))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def varied(count: int, shape: tuple[int, ...]) -> Tensor:
    """Return random images of different brightness, contrast and coarseness."""
    coarse = torch.rand(count, shape[0], 4, 4)
    smooth = nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    return (0.7 * smooth + 0.3 * torch.rand(count, *shape)).clamp(0, 1)


def logits_of(model: Callable[[Tensor], Any], images: Tensor) -> Tensor:
    """Return the logits of a model, also where its output has more."""
    with torch.no_grad():
        output = model(images)
    return read_logits(output)


def spread(logits: Tensor) -> float:
    """Return how much the logits depend on the images: the largest deviation of a class."""
    return float(logits.std(0).max())


def difference(ours: Tensor, theirs: Tensor, scale: float) -> float:
    """Return the largest difference of logits, relative to their spread over images."""
    return float((ours - theirs).abs().max()) / scale


def require(worst: float, scale: float, when: str) -> None:
    """Refuse logits that differ, and a comparison that could not have seen it."""
    if not scale >= LEAST_SPREAD:
        raise AssertionError(f"logits hardly depend on the images (spread {scale:.0e})")
    if not worst <= TOLERANCE:
        raise AssertionError(f"logits differ by {worst:.1e} of their spread {when}")


def convert(model: nn.Module, images: Tensor) -> str:
    """Convert to every norm; compare, and run a pass in training."""
    before, worst = logits_of(model, images), 0.0
    scale = spread(before)
    refused, untrained = {}, {}
    for name in norms.NORMS:
        try:
            copy = norms.convert(model, name)
        except (ValueError, NotImplementedError) as error:
            refused[name] = str(error)
            continue
        for domain in ("clean", "adversarial") if name in KEPT else ():
            with norms.route(copy, domain=domain):
                worst = max(worst, difference(logits_of(copy, images), before, scale))
        try:
            with norms.route(copy, clean=len(images) // 2):
                output = copy.train()(images)
            read_logits(output).sum().backward()
        except ValueError as error:  # of torch: an instance norm of a map of one position
            untrained[name] = str(error)
    if len(refused) == len(norms.NORMS):
        raise ValueError(next(iter(refused.values())))
    require(worst, scale, "after conversion")
    partly = "".join(f"; {name} refused: {why}" for name, why in refused.items())
    partly += "".join(f"; {name} not trained: {why}" for name, why in untrained.items())
    count = len(norms.NORMS) - len(refused)
    return f"{count} of {len(norms.NORMS)} norms, {worst:.0e}{partly}"


def evaluate(model: nn.Module, images: Tensor) -> str:
    """Evaluate on eight images, six of them with the label that the model predicts."""
    threat, conditions = advnorm.Linf(2 / 255), ["clean", "fgsm", "pgd-3"]
    labels = logits_of(model, images[:8]).argmax(1)
    labels[:2] = (labels[:2] + 1) % CLASSES
    result = advnorm.evaluate(model, images[:8], labels, threat, conditions=conditions)
    correct = [row.accuracy.correct for row in result.results]
    if correct[0] != 6:
        raise AssertionError(f"{correct[0]} right of 8, but the model has 6")
    return "/".join(map(str, correct)) + " of 8"


def audit(model: nn.Module, images: Tensor) -> str:
    """Audit with a short attack, on labels that the model predicts."""
    predicted = logits_of(model, images[:2]).argmax(1)
    result = advnorm.audit(
        model, images[:2], predicted, advnorm.Linf(2 / 255), suite=("pgd-5",)
    )
    return "flags: " + (", ".join(result.flagged) or "none")


class Interrupt(Quiet):
    """Send this process a signal in the middle of training, as Ctrl-C would."""

    def update(self, done: int, total: int, text: str) -> None:
        """Stop once half of the work is reported."""
        if 2 * done >= total:
            signal.raise_signal(signal.SIGINT)


def recipe_of(model: nn.Module) -> Recipe:
    """Return a tiny recipe: mixture norms, where the model can be converted."""
    changes = ["epochs=2", "batch_size=12", "attack.steps=1", "validation.steps=1"]
    changes += ["threat.eps=2/255", "optimizer.lr=0.001", "data.augment=none"]
    try:
        norms.convert(model, "mixture")
        changes += ["objective.name=mixed", "norm.name=mixture", "norm.apply=convert"]
    except (ValueError, NotImplementedError):
        names = list(norms.count_norms(model))
        changes += [f"norm.name={names[0] if len(names) == 1 else 'none'}"]
    return override(Recipe(), changes)


def bits(run: advnorm.records.Run) -> dict[str, bytes]:
    """Return the last state of a run and its best weights, as bytes."""
    last = max(run.checkpoints.glob("state-*.safetensors"))
    files = [last, *run.checkpoints.glob("best-*.safetensors")]
    return {file.name: file.read_bytes() for file in files}


def train(model: nn.Module, data: Any, folder: Path) -> str:
    """Train twice, the second time with a stop and a resume; compare bit by bit."""
    recipe = recipe_of(model)
    options = {"device": "cpu", "model": model, "data": data}
    whole = advnorm.train(recipe, folder / "whole", **options)
    try:
        advnorm.train(recipe, folder / "part", progress=Interrupt(), **options)
    except StoppedError:
        pass
    else:
        raise AssertionError("the training was not stopped")
    part = advnorm.train(recipe, folder / "part", resume=True, **options)
    if bits(whole) != bits(part):
        raise AssertionError("the resumed run has other weights")
    return f"{recipe.norm.name}, resumed bitwise"


def export(model: nn.Module, images: Tensor, folder: Path) -> str:
    """Export to ONNX and torch."""
    branch = "clean" if norms.active_branch(model) else None
    text = "onnx and torch"
    for to, out in (("onnx", "net.onnx"), ("torch", "net.py")):
        try:
            advnorm.export(model, to=to, out=folder / out, images=images, branch=branch)
        except (ValueError, NotImplementedError) as error:
            if to == "onnx":
                raise
            text = f"onnx; torch refused: {error}"
    return text


def load(model: nn.Module, images: Tensor, folder: Path) -> str:
    """Run the exported files with batches of 1 and 7, apart from the export's own check."""
    import runpy

    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    readers = {
        "onnx": lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])
    }
    if (folder / "net.py").exists():
        readers["torch"] = runpy.run_path(str(folder / "net.py"))["load"]()
    worst = 0.0
    with norms.route(model, domain="clean"):
        scale = spread(logits_of(model, images))
    for count in (1, 7):
        with norms.route(model, domain="clean"):
            expected = logits_of(model, images[:count])
        for reader in readers.values():
            worst = max(
                worst, difference(logits_of(reader, images[:count]), expected, scale)
            )
    require(worst, scale, "after loading")
    return f"{' and '.join(readers)}, {worst:.0e}"


def attempt(step: Callable[[], str]) -> Result:
    """Run a step. A refusal is a ValueError or NotImplementedError of one line."""
    start = time.perf_counter()
    try:
        status, text = "passed", step()
    except (ValueError, NotImplementedError) as error:
        text = str(error).strip()
        status = "refused" if "\n" not in text else "failed"
    except Exception as error:
        status, text = "failed", f"{type(error).__name__}: {error}"
    return Result(status, text, time.perf_counter() - start)


def take_steps(model: nn.Module, shape: tuple[int, ...] = SHAPE) -> dict[str, Result]:
    """Take a network through all steps."""
    warm(model, shape)
    torch.manual_seed(2)
    images, labels = varied(50, shape), torch.arange(50) % CLASSES
    data = ((images[:40], labels[:40]), (images[40:], labels[40:]))
    results = {
        "convert": attempt(lambda: convert(model, images[:8])),
        "evaluate": attempt(lambda: evaluate(model, images)),
        "audit": attempt(lambda: audit(model, images)),
    }
    with TemporaryDirectory() as path:
        folder = Path(path)
        results["train"] = attempt(lambda: train(model, data, folder))
        trained = model
        if results["train"].status == "passed":
            trained = advnorm.load(folder / "whole", model=model, data=data)
        results["export"] = attempt(lambda: export(trained, images[:8], folder))
        if results["export"].status == "passed":
            results["load"] = attempt(lambda: load(trained, images, folder))
        else:
            results["load"] = Result("refused", "nothing was exported")
    return results


def run(name: str, peers: Path) -> dict[str, Any]:
    """Take one architecture through all steps."""
    start = time.perf_counter()
    model = build(name, peers)
    steps = take_steps(model)
    parameters = sum(p.numel() for p in model.parameters())
    seconds = time.perf_counter() - start
    return {"parameters": parameters, "seconds": seconds, "steps": steps}


def child(name: str, peers: Path, out: Path) -> None:
    """Run one architecture in a process of its own; a crash or a hang is a failure too."""
    file_of(out, name).unlink(missing_ok=True)
    with TemporaryFile() as errors:
        process = get_context("fork").Process(
            target=_apart, args=(name, peers, out, errors.fileno())
        )
        process.start()
        process.join(WAIT)
        process.kill()
        process.join()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if not file_of(out, name).exists():
        end = (
            f"ended by signal {-code}" if (code := process.exitcode or 0) < 0 else "stopped"
        )
        reason = lines[-1] if lines else end
        failed = dict.fromkeys(STEPS, Result("failed", f"not built: {reason}"))
        save(out, name, {"parameters": 0, "seconds": 0.0, "steps": failed})


def _apart(name: str, peers: Path, out: Path, errors: int) -> None:
    """Run one architecture in this process, whose errors go to a file."""
    os.dup2(errors, 2)
    setrlimit(RLIMIT_CPU, (SECONDS, SECONDS))
    save(out, name, run(name, peers))


def file_of(out: Path, name: str) -> Path:
    """Return the file of an architecture's results."""
    return out / f"{name.replace(' ', '_')}.json"


def save(out: Path, name: str, result: dict[str, Any]) -> None:
    """Write the results of one architecture."""
    out.mkdir(parents=True, exist_ok=True)
    result["machine"] = Environment.here(device="cpu", threads=1).machine
    file_of(out, name).write_text(json.dumps(result, indent=1))


def page(out: Path, names: list[str]) -> str:
    """Return a row an architecture, then the number of each step, then all reasons."""
    rows = {
        name: json.loads(file_of(out, name).read_text())
        for name in names
        if file_of(out, name).exists()
    }
    machines = "; ".join(sorted({row["machine"] for row in rows.values()}))
    sources = Counter(ARCHITECTURES[name].source for name in rows)
    lines = [
        f"{len(rows)} architectures of {len(sources)} sources "
        f"({', '.join(f'{source} {count}' for source, count in sources.items())}). "
        + totals(rows),
        "",
        f"Machine: {machines}, one thread. Seconds are of a shared machine.",
        "",
        f"| architecture | source | parameters | {' | '.join(STEPS)} | seconds |",
        "|---" * (len(STEPS) + 4) + "|",
    ]
    for name, row in rows.items():
        marks = " | ".join(cell(*row["steps"][step]) for step in STEPS)
        source = ARCHITECTURES[name].source
        size = f"{row['parameters']:,}"
        lines.append(f"| {name} | {source} | {size} | {marks} | {row['seconds']:.0f} |")
    lines += ["", f"| of {len(rows)} | {' | '.join(STEPS)} |", "|---" * 7 + "|"]
    for status in ("passed", "refused", "failed"):
        counts = (
            str(sum(row["steps"][step][0] == status for row in rows.values()))
            for step in STEPS
        )
        lines.append(f"| {status} | {' | '.join(counts)} |")
    return "\n".join([*lines, "", *reasons(rows)])


def reasons(rows: dict[str, Any]) -> Iterator[str]:
    """Say why a step was refused, in part or as a whole, or failed, each reason once."""
    named: dict[str, list[str]] = {}
    for name, row in rows.items():
        for step, (status, text, _) in row["steps"].items():
            if status != "passed":
                named.setdefault(f"{step} {status}: {text}", []).append(name)
            elif "refused" in text or "not trained" in text:
                named.setdefault(f"{step}: {text.partition('; ')[2]}", []).append(name)
    for reason, names in named.items():
        yield f"- {', '.join(names)}. {reason}"


def totals(rows: dict[str, Any]) -> str:
    """Say how many took all steps, and how many only refused some, or failed."""
    kinds = Counter(
        next((k for k in ("failed", "refused") if k in outcomes), "passed")
        for outcomes in (
            {step[0] for step in row["steps"].values()} for row in rows.values()
        )
    )
    partly = sum(
        all(status == "passed" for status, *_ in row["steps"].values())
        and "refused" in row["steps"]["export"][1]
        for row in rows.values()
    )
    return (
        f"{kinds['passed']} passed all six steps, {partly} of them without one of the two "
        f"exports; {kinds['refused']} passed some and were refused in the others; "
        f"{kinds['failed']} failed. The reasons are below."
    )


def cell(status: str, text: str, seconds: float) -> str:
    """Return a short cell: what a step measured, or that it did not pass."""
    return text.partition(";")[0] if status == "passed" else status


def main() -> None:
    """Run what has no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=os.environ.get("ADVNORM_PEERS"))
    parser.add_argument("--out", type=Path, default=Path("foreign"))
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, metavar="NAME")
    parser.add_argument("--page", type=Path, help="write the results as Markdown")
    arguments = parser.parse_args()
    out, names = arguments.out.resolve(), arguments.only or list(ARCHITECTURES)
    if arguments.page:
        arguments.page.write_text(HEAD + page(out, names) + "\n")
        return
    if arguments.peers is None:
        parser.error("--peers: name the folder of the repositories' checkouts")
    torch.set_num_threads(1)
    for module in PRELOADED:
        import_module(module)
    for name in names:
        if arguments.only or not file_of(out, name).exists():
            print(name, file=sys.stderr, flush=True)
            child(name, Path(arguments.peers).resolve(), out)
    print(page(out, names))


if __name__ == "__main__":
    main()
