"""Evaluate a model of timm or of Hugging Face's transformers, fine-tuned for a moment.

Command: python examples/evaluate_package_model.py timm:resnet18
         python examples/evaluate_package_model.py hf:microsoft/resnet-18
Cost: about 20 s on 2 cores, and the download of the weights.
Prints: which weights are used, then clean and robust accuracy with 95% intervals.

Without a network connection the weights are random (for hf: those of a small ResNet). The
model gets 10 new classes, so it sees a few batches of digits first.
"""

import sys
from importlib import import_module
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

import advnorm
from advnorm.models import Standardize


class Classifier(nn.Module):
    """Gray 8x8 images in [0, 1] to logits: what the network expects is done inside."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.standardize = Standardize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits alone, where the network returns more."""
        color = interpolate(images, size=(32, 32), mode="bilinear").expand(-1, 3, -1, -1)
        output = self.network(self.standardize(color))
        logits: Tensor = getattr(output, "logits", output)
        return logits


def package(name: str) -> Any:
    """Import a package, or stop with the command that installs it."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        sys.exit(f"{name} cannot be imported ({error}): pip install {name}")


def timm_model(name: str) -> nn.Module:
    """Return a model of timm, with pretrained weights if they can be downloaded."""
    timm = package("timm")
    try:
        network = timm.create_model(name, pretrained=True, num_classes=10)
        print(f"timm:{name}, pretrained weights")
    except (OSError, RuntimeError) as error:
        network = timm.create_model(name, pretrained=False, num_classes=10)
        print(f"timm:{name}, random weights ({type(error).__name__} in the download)")
    return Classifier(network)


def hf_model(name: str) -> nn.Module:
    """Return a model of Hugging Face, or a small one with random weights."""
    hf = package("transformers")
    try:
        network = hf.AutoModelForImageClassification.from_pretrained(
            name, num_labels=10, ignore_mismatched_sizes=True
        )
        print(f"hf:{name}, pretrained weights")
    except OSError:
        config = hf.ResNetConfig(
            embedding_size=32, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic"
        )
        config.num_labels = 10
        network = hf.ResNetForImageClassification(config)
        print(f"a small ResNet with random weights: hf:{name} cannot be downloaded")
    return Classifier(network)


source, _, name = (sys.argv[1] if len(sys.argv) == 2 else "").partition(":")
if source not in ("timm", "hf") or not name:
    sys.exit("name a model: timm:resnet18 or hf:microsoft/resnet-18")

torch.manual_seed(0)
model = timm_model(name) if source == "timm" else hf_model(name)
digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()  # in [0, 1]
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:360], labels[:360]
images, labels = images[360:], labels[360:]

optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
model.train()
for rows in torch.randperm(len(images)).split(64)[:20]:
    optimizer.zero_grad()
    cross_entropy(model(images[rows]), labels[rows]).backward()
    optimizer.step()

model.eval()
threat, conditions = advnorm.Linf(0.03), ["clean", "fgsm", "pgd-10"]
samples = test_images[:100], test_labels[:100]
print(advnorm.evaluate(model, *samples, threat, conditions=conditions))
