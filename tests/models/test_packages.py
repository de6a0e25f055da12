"""Models of other packages, softly: imported where they are named, never needed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from advnorm.models import build, check_options, options
from advnorm.models.standardize import Standardize
from advnorm.norms import NORMS


def make(name, standardize=None, **values):
    return build(
        name,
        shape=(3, 8, 8),
        classes=5,
        norm=NORMS["batch"](),
        standardize=standardize,
        options=values,
    )


@pytest.fixture
def imitated(monkeypatch):
    """Put modules with the interface of timm and transformers in their place."""
    calls = []

    def create_model(name, *, pretrained, num_classes, in_chans, **others):
        calls.append((name, pretrained, others))
        network = nn.Sequential(nn.Flatten(), nn.Linear(64 * in_chans, num_classes))
        network.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
        return network

    class Network(nn.Module):
        def __init__(self, labels):
            super().__init__()
            self.linear = nn.Linear(192, labels)

        def forward(self, images):
            return SimpleNamespace(logits=self.linear(images.flatten(1)))

    def from_pretrained(name, *, config, **others):
        calls.append((name, others))
        return Network(config.labels)

    package = ModuleType("timm")
    package.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", package)
    package = ModuleType("transformers")
    package.AutoConfig = SimpleNamespace(
        from_pretrained=lambda name, num_labels, **_: SimpleNamespace(labels=num_labels)
    )
    package.AutoModelForImageClassification = SimpleNamespace(
        from_pretrained=from_pretrained, from_config=lambda config: Network(config.labels)
    )
    package.AutoImageProcessor = SimpleNamespace(
        from_pretrained=lambda name, **_: SimpleNamespace(
            image_mean=[0.5] * 3, image_std=[0.5] * 3
        )
    )
    monkeypatch.setitem(sys.modules, "transformers", package)
    return calls


def test_a_model_of_timm_gets_classes_channels_and_options(imitated):
    model = make("timm:resnet18", Standardize([0.0], [1.0]), drop_rate=0.1)
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)
    assert imitated == [("resnet18", False, {"drop_rate": 0.1})]
    assert options("timm:resnet18") == {"pretrained": False}
    with pytest.raises(ValueError, match="pretrained"):
        check_options("timm:resnet18", {"pretrained": 3})


def test_pretrained_weights_bring_their_own_standardization(imitated):
    model = make("timm:resnet18", pretrained=True)
    assert torch.equal(model[0].std, torch.full((3,), 0.25))
    with pytest.raises(ValueError, match=r"set model.standardize=none"):
        make("timm:resnet18", Standardize([0.0], [1.0]), pretrained=True)


def test_a_model_of_hugging_face_returns_logits_and_runs_no_code_of_its_repository(
    imitated,
):
    model = make("hf:org/name")
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)
    ((name, others),) = imitated
    assert name == "org/name" and others["trust_remote_code"] is False
    assert others["use_safetensors"] is True
    assert make("hf:org/name", pretrained=False)(torch.rand(2, 3, 8, 8)).shape == (2, 5)


@pytest.mark.parametrize(
    "name", ["timm:hf-hub:x/y", "timm:local-dir:/x", "hf:../x/y", "hf:"]
)
def test_a_name_that_is_none_is_refused(name, imitated):
    with pytest.raises(ValueError, match="is no name"):
        make(name)
    assert not imitated


@pytest.mark.parametrize(
    ("name", "package"), [("timm:resnet18", "timm"), ("hf:org/name", "transformers")]
)
def test_a_missing_package_says_what_to_install(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"pip install {package}"):
        make(name)
