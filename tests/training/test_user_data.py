"""A model and data passed in Python are trained, resumed, loaded; mistakes are a sentence."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import advnorm
from advnorm.data import as_data_set, load
from advnorm.models import MODELS
from advnorm.recipe import ModelSpec, NormSpec, from_yaml
from advnorm.training import StoppedError


def build(norm, classes, width=3):
    layers = [nn.Conv2d(1, width, 3), norm(width), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36 * width, classes))


@pytest.fixture
def arrays():
    test = load("digits").test
    return test.images[:100].float() / 255, test.labels[:100]


@pytest.fixture
def recipe(tiny):
    data = type(tiny.data)()
    return tiny.model_copy(update={"data": data, "model": ModelSpec(options={"depth": 1})})


class Pairs(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


def test_all_forms_of_the_same_data_are_the_same(arrays):
    images, labels = arrays
    forms = [
        (images, labels),
        (images.numpy(), labels.numpy()),
        TensorDataset(images, labels),
        Pairs(images, labels),
        DataLoader(TensorDataset(images, labels), batch_size=7, shuffle=True),
    ]
    digests = {as_data_set(form).digest() for form in forms}
    assert len(digests) == 1
    halves = (images[:60], labels[:60]), (images[60:], labels[60:])
    pair = as_data_set(halves)
    assert torch.equal(pair.test.images, images[60:]) and len(pair.train) == 60
    named = as_data_set({"train": Pairs(*halves[0]), "test": TensorDataset(*halves[1])})
    assert named.digest() == pair.digest()


def test_a_run_of_python_goes_on_bitwise_and_says_what_to_pass(
    arrays, recipe, tmp_path, fingerprint, monkeypatch
):
    own = {"model": build, "data": arrays, "device": "cpu"}
    whole = advnorm.train(recipe, tmp_path / "whole", **own)
    calls = []

    def check(self):
        calls.append(1)
        if len(calls) == 4:
            raise StoppedError(15)

    with monkeypatch.context() as patch:
        patch.setattr("advnorm.training.stop.Stop.check", check)
        with pytest.raises(StoppedError):
            advnorm.train(recipe, tmp_path / "part", **own)
    begun = from_yaml((tmp_path / "part" / "recipe.yaml").read_text())
    assert begun.model.name == "python:build" and begun.data.name == "python"
    with pytest.raises(ValueError, match="build was passed in Python: pass it again"):
        advnorm.train(begun, tmp_path / "part", data=arrays, resume=True)
    with pytest.raises(ValueError, match="data were passed in Python: pass them again"):
        advnorm.train(begun, tmp_path / "part", model=build, resume=True)
    with pytest.raises(ValueError, match="not those that the run began with"):
        other = (1 - arrays[0], arrays[1])
        advnorm.train(begun, tmp_path / "part", model=build, data=other, resume=True)
    part = advnorm.train(begun, tmp_path / "part", **own, resume=True)
    assert fingerprint(part) == fingerprint(whole)
    model = advnorm.load(tmp_path / "whole", model=build, data=arrays)
    assert not model.training and model(arrays[0]).shape == (100, 10)


def test_a_module_is_trained_from_its_weights_and_loaded(recipe, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    changed = recipe.replace(norm=NormSpec(name="none"), epochs=1)
    before = net[1].weight.clone()
    advnorm.train(changed, tmp_path / "run", model=net, device="cpu")
    assert torch.equal(net[1].weight, before)
    model = advnorm.load(tmp_path / "run", model=net)
    assert not torch.equal(model.network[1].weight, before)
    with pytest.raises(ValueError, match="Sequential was passed in Python"):
        advnorm.load(tmp_path / "run")


def test_a_registered_model_is_known_in_this_process_only(recipe, tmp_path, monkeypatch):
    entries = dict(MODELS._entries)
    monkeypatch.setattr(MODELS, "_entries", entries)

    @MODELS.register("registered")
    def registered(context):
        layers = {"flat": nn.Flatten(), "out": nn.Linear(64, context.classes)}
        return context.assemble(layers)

    changed = recipe.model_copy(update={"model": ModelSpec(name="registered"), "epochs": 1})
    with pytest.raises(ValueError, match=r"batch, but none: set norm.name=none"):
        advnorm.train(changed, tmp_path / "run", device="cpu")
    changed = changed.replace(norm=NormSpec(name="none"))
    advnorm.train(changed, tmp_path / "run", device="cpu")
    advnorm.load(tmp_path / "run")
    del entries["registered"]
    with pytest.raises(ValueError, match=r"for one of your own write FILE.py:NAME"):
        advnorm.load(tmp_path / "run")


class Random(Pairs):
    def __getitem__(self, index):
        return torch.rand(1, 8, 8), int(self.labels[index])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, y: x, "the data have no labels"),
        (lambda x, y: TensorDataset(x), "the data have no labels"),
        (lambda x, y: (x, y * 0), "the data have 1 class: give at least 2"),
        (lambda x, y: (x, y - 1), "that are not 0 to 9"),
        (lambda x, y: (x, y * 2), "that are not 0 to 9"),
        (lambda x, y: (x, y[:50]), "has 100 images but data has 50 labels"),
        (lambda x, y: (x * 3 - 1, y), "has images outside of [0, 1]"),
        (lambda x, y: {"training": (x, y)}, "give 'train' and 'test'"),
        (lambda x, y: 3, "data is a int: pass (images, labels), a Dataset"),
        (lambda x, y: Random(x, y), "another image each time"),
        (lambda x, y: (x, np.linspace(0, 1, 100)), "the labels are not integers"),
    ],
)
def test_a_mistake_in_the_data_is_one_sentence(make, words, arrays, recipe, tmp_path):
    with pytest.raises(ValueError) as error:
        advnorm.train(recipe, tmp_path / "run", model=build, data=make(*arrays))
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
