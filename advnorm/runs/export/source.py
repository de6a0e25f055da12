"""The source of an export: the model of a run or of the user's own, and its metadata."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import advnorm
from advnorm.data import DataSet
from advnorm.evaluation.engine import search_dtype
from advnorm.model_output import with_logits_only
from advnorm.norms import Domain, active_branch, route
from advnorm.norms.route import DOMAINS
from advnorm.recipe import Recipe, read
from advnorm.records import Run, TrainingProgress, mark_of
from advnorm.runs.load import first_samples, load_trained
from advnorm.training.components import load_data

SAMPLES = 64
"""Test images whose logits are compared."""


@dataclass(frozen=True)
class ExportSource:
    """A model in evaluation mode on the CPU, images to test it with, and its origin."""

    model: nn.Module
    images: Tensor
    branch: Domain | None
    name: str
    weights: str = ""
    """Of a run: the checkpoint and its digest."""
    training: TrainingProgress | None = None
    run: Run | None = None
    recipe: Recipe | None = None
    data: DataSet | None = None

    def logits(self, images: Tensor) -> Tensor:
        """Return what the model answers on its branch."""
        with torch.no_grad(), route(self.model, domain=self.branch or "adversarial"):
            output: Tensor = self.model(images.to(self.images.dtype))
        return output

    def facts(self) -> dict[str, str]:
        """Describe the origin of the network and its inputs, for every exported file."""
        shape = " x ".join(map(str, self.images.shape[1:]))
        low, high = self.recipe.threat.bounds if self.recipe else (0.0, 1.0)
        facts = {
            "name": self.name,
            "input": f"batch x {shape}, {_dtype(self.images)}, in [{low:g}, {high:g}]",
            "output": "logits",
            "exported_by": f"advnorm {advnorm.__version__}",
        }
        if self.weights:
            facts["weights"] = f"{self.weights}{mark_of(self.training)}"
        if self.recipe:
            facts["norm"] = self.recipe.norm.name
        if self.branch:
            facts["branch"] = self.branch
        return facts

    def test_batches(self, count: int, size: int) -> Iterator[Tensor]:
        """Yield the first test images of a run's data."""
        assert self.data is not None
        order = torch.arange(min(count, len(self.data.test)))
        device = torch.device("cpu")
        for batch in self.data.test.batches(order, batch_size=size, device=device):
            yield batch.images.to(self.images.dtype)


@dataclass(frozen=True)
class ExportRequest:
    """What the user asked to export: a run folder, or a model with images to test it."""

    subject: Run | nn.Module
    branch: str | None = None
    weights: str = "best"
    images: Tensor | None = None
    root: Path | None = None
    """The folder of data sets."""
    recipe: Recipe | None = None
    """Of a run: its recipe, where the user has changed it."""

    def load(self) -> ExportSource:
        """Load the model."""
        if isinstance(self.subject, Run):
            return _run_source(self.subject, self)
        return _model_source(self.subject, self)


def _run_source(run: Run, request: ExportRequest) -> ExportSource:
    """Load the model and the test data of a run folder."""
    recipe = request.recipe or read(run.path / "recipe.yaml")
    data = load_data(recipe, root=request.root)
    trained = load_trained(run, recipe, data, weights=request.weights, warnings=[])
    model = trained.model.cpu().eval()
    images = first_samples(data, SAMPLES, torch.device("cpu")).images
    return ExportSource(
        model,
        images.to(search_dtype(model)),
        choose_branch(model, request.branch, recipe),
        run.path.resolve().name,
        trained.weights,
        trained.training,
        run,
        recipe,
        data,
    )


def _model_source(model: nn.Module, request: ExportRequest) -> ExportSource:
    """Take a model of the user's own, in the state that it is in."""
    images = request.images
    if not isinstance(images, Tensor) or images.ndim < 2 or not len(images):
        raise ValueError(
            "a model needs images to be exported: give images=, a batch as the model takes "
            "it; the export is tested with them"
        )
    if any(layer.training for layer in model.modules()):
        raise ValueError("the model is in training mode: call model.eval() first")
    branch = choose_branch(model, request.branch, None)
    images = images[:SAMPLES].detach().cpu()
    network = with_logits_only(model, images[:2])
    source = ExportSource(network, images, branch, type(model).__name__)
    output = source.logits(images[:2])
    if not isinstance(output, Tensor):
        raise ValueError(
            f"the model returns a {type(output).__name__}, not a tensor of logits: return "
            "the logits alone"
        )
    return source


def choose_branch(
    model: nn.Module, branch: str | None, recipe: Recipe | None
) -> Domain | None:
    """Return the branch to export; ``None`` for a model without branches."""
    if branch is not None and branch not in DOMAINS:
        raise ValueError(f"no branch {branch!r}; there are: {', '.join(DOMAINS)}")
    if active_branch(model) is None:
        if branch is not None:
            raise ValueError(
                f"branch={branch}, but the model has no norm with branches: leave it out"
            )
        return None
    named = branch or (recipe.evaluation.branch if recipe else None)
    if named is None or named == "worst":
        raise ValueError(
            "the model has a norm with two branches, and one of them is exported: name it, "
            "branch='adversarial' or branch='clean'"
        )
    return "clean" if named == "clean" else "adversarial"


def _dtype(images: Tensor) -> str:
    return str(images.dtype).removeprefix("torch.")
