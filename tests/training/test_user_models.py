"""A model of the user's own, named as FILE.py:NAME, is trained, resumed and evaluated."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import advnorm
from advnorm import cli, norms
from advnorm.models import as_user_model, load_user_model, use_models
from advnorm.recipe import ModelSpec, NormSpec, Recipe, RecipeError, from_yaml, override
from advnorm.records import Run
from advnorm.training import StoppedError, build_model, load_data, train

MINE = """
import torch
from torch import nn

print("the file runs")

def build(norm, classes, shape, width=4):
    size = shape[1] * shape[2] * width
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1), norm(width), nn.ReLU(),
        nn.Flatten(), nn.Linear(size, classes))

def plain(classes: int, width: int = 4):
    return build(nn.BatchNorm2d, classes, (1, 8, 8), width)

def ignores(norm, classes):
    return plain(classes)

def calls_and_ignores(norm, classes):
    norm(4)
    return plain(classes)

def bare(classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def few():
    return plain(4)

def big():
    return build(nn.BatchNorm2d, 10, (1, 9, 9))

class Moving(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = plain(10), nn.BatchNorm1d(10)
    def forward(self, x):
        return nn.functional.batch_norm(self.inner(x), self.norm.running_mean,
            self.norm.running_var, training=True)

class Pair(nn.Module):
    def __init__(self, first=True):
        super().__init__()
        self.inner, self.first = plain(10), first
    def forward(self, x):
        return (self.inner(x), x) if self.first else (x, self.inner(x))

def second():
    return Pair(first=False)

net = plain(10)
empty = nn.Sequential(nn.Flatten(), nn.ReLU())
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.fixture
def own(tiny):
    """Return a function that changes the tiny recipe to a model of the file."""

    def of(model, **norm):
        changes = [f"model.name=mine.py:{model}", "model.options={}"]
        return override(tiny, changes).replace(norm=NormSpec(**norm))

    return of


def use(name):
    return use_models(load_user_model(f"mine.py:{name}"))


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    written = capsys.readouterr()
    return end.value.code or 0, written.out, written.err


def settings(recipe):
    return [
        f"--set=data.{key}={getattr(recipe.data, key)}" for key in ("train", "test")
    ] + [
        "--set=epochs=2",
        "--set=batch_size=32",
        "--set=validation.samples=10",
        "--set=attack.steps=1",
    ]


@pytest.mark.parametrize("name", ["group", "dual", "none"])
def test_a_function_gets_the_arguments_that_it_asks_for(name, mine, own):
    recipe = own("build", name=name).replace(model=ModelSpec(options={"width": 6}))
    with use("build"):
        model = build_model(recipe, load_data(recipe, root=None))
    assert model.network[0].weight.shape == (6, 1, 3, 3)
    assert type(model.network[1]) is type(norms.NORMS[name]()(6))
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    mean, std = load_data(recipe, root=None).moments()
    assert torch.equal(model.standardize.mean, mean) and torch.equal(
        model.standardize.std, std
    )


def test_train_stop_resume_and_evaluate_from_the_command_line(
    mine, own, tiny, monkeypatch, capsys, fingerprint
):
    naming = "--set=model.name=mine.py:build"
    tiny_settings = settings(tiny)
    code, output, error = call(
        monkeypatch, capsys, "train", "digits.pgd", "--out=a", naming, *tiny_settings
    )
    assert code == 0, error
    assert "next: advnorm evaluate a --set model.name=mine.py:build" in output
    recipe = from_yaml(Run.open(mine / "a").recipe_text())
    assert recipe.model.name == "mine.py:build" and len(recipe.model.digest) == 64
    few = ["--set=samples=10", "--set=conditions=[clean]"]
    code, output, error = call(monkeypatch, capsys, "evaluate", "a", *few)
    assert code == 2 and "add --set model.name=mine.py:build" in error
    assert "the file runs" not in output
    code, output, error = call(monkeypatch, capsys, "evaluate", "a", naming, *few)
    assert code == 0 and "n=10" in output, error


def test_a_stopped_run_goes_on_bitwise_and_only_with_its_file(
    mine, own, fingerprint, monkeypatch
):
    recipe = own("build", name="mixture")
    with use("build"):
        whole = train(recipe, mine / "whole", device="cpu")
        with monkeypatch.context() as patch:
            patch.setattr("advnorm.training.stop.Stop.check", stop_at(5))
            with pytest.raises(StoppedError) as stopped:
                train(recipe, mine / "part", device="cpu")
        assert stopped.value.resume.endswith("--resume --set model.name=mine.py:build")
        begun = from_yaml(Run.open(mine / "part").recipe_text())
    with pytest.raises(ValueError, match=r"is code of a file.*add --set model.name=mine"):
        train(begun, mine / "part", device="cpu", resume=True)
    original = (mine / "mine.py").read_text()
    (mine / "mine.py").write_text(original + "\n# another line\n")
    with (
        use("build"),
        pytest.raises(ValueError, match=r"mine.py has changed since the run"),
    ):
        train(begun, mine / "part", device="cpu", resume=True)
    (mine / "moved.py").write_text(original)
    with use_models(load_user_model("moved.py:build")):
        moved = begun.replace(model=ModelSpec(name="moved.py:build"))
        part = train(moved, mine / "part", device="cpu", resume=True)
    assert fingerprint(part) == fingerprint(whole)


def stop_at(number):
    calls = []

    def check(self):
        calls.append(1)
        if len(calls) == number:
            raise StoppedError(15)

    return check


@pytest.mark.parametrize(
    ("name", "norm", "words"),
    [
        ("ignores", {"name": "mixture"}, "the norm of the recipe, mixture, but batch"),
        ("calls_and_ignores", {"name": "group"}, "group, but batch: set norm.apply=conv"),
        ("calls_and_ignores", {"name": "none"}, "none, but batch: set norm.apply=convert"),
        ("net", {"name": "batch", "options": {"eps": 0.1}}, "batch with {'eps': 0.1}, but"),
        ("bare", {"name": "batch"}, "batch, but none: set norm.name=none"),
        (
            "bare",
            {"name": "mixture", "apply": "convert"},
            "norm.apply=convert: the model has",
        ),
        ("few", {}, "returns (4, 4) for 4 images: return at least 10 logits"),
        ("big", {}, "does not run on digits[train=96,test=40,seed=0], images of shape"),
        ("Moving", {}, "moves its statistics in evaluation (buffer 'network.norm.run"),
        ("second", {}, "returns a tuple, not a tensor of logits"),
        ("empty", {"name": "none"}, "has no parameters to train"),
    ],
)
def test_a_model_that_does_not_fit_is_one_sentence(name, norm, words, mine, own):
    with use(name), pytest.raises(RecipeError) as error:
        train(own(name, **norm), mine / "run", device="cpu")
    assert words in str(error.value) and "\n" not in str(error.value).strip()
    assert not (mine / "run").exists()


def test_the_first_item_of_a_tuple_is_the_logits_if_it_has_the_classes(mine, own):
    recipe = own("Pair").replace(epochs=1)
    with use("Pair"):
        run = train(recipe, mine / "run", device="cpu")
        model = advnorm.load(run.path, model="mine.py:Pair").eval()
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(model(images), model.network.network(model.standardize(images))[0])


@pytest.mark.parametrize("name", ["net", "plain", "build"])
def test_norms_are_converted_where_the_recipe_says_so(name, mine, own):
    recipe = own(name, name="mixture", apply="convert")
    with use(name):
        model = build_model(recipe, load_data(recipe, root=None))
        run = train(recipe, mine / "run", device="cpu")
    assert type(model.network[1]) is norms.MixtureNorm
    assert run.epochs()[-1].epoch == recipe.epochs


def test_the_initial_weights_are_a_function_of_the_seed(mine, own):
    def weights(seed, name):
        recipe = own(name).replace(seed=seed)
        torch.manual_seed(seed + 7)
        with use(name), torch.random.fork_rng():
            torch.manual_seed(recipe.seed)
            return build_model(recipe, load_data(recipe, root=None)).network[0].weight

    assert torch.equal(weights(0, "build"), weights(0, "build"))
    assert not torch.equal(weights(0, "build"), weights(1, "build"))
    assert torch.equal(weights(0, "net"), weights(1, "net"))  # made when the file runs


def test_a_model_is_forgotten_after_its_block(mine, own):
    recipe, data = own("build"), load_data(Recipe(), root=None)
    with use("build"):
        build_model(recipe, data)
    with pytest.raises(ValueError, match="run only where you name it"):
        build_model(recipe, data)


def test_a_network_is_copied_and_so_not_trained_itself(own):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    before = net[1].weight.clone()
    recipe = own("x").replace(
        model=ModelSpec(name="python:Sequential"), norm=NormSpec(name="none")
    )
    with use_models(as_user_model(net)):
        model = build_model(recipe, load_data(recipe, root=None))
    model.network[1].weight.data.zero_()
    assert torch.equal(net[1].weight, before)


class Named(nn.Module):
    """A network whose output names its logits, as a dict or as an attribute."""

    def __init__(self, wrap):
        super().__init__()
        self.norm, self.linear, self.wrap = nn.BatchNorm2d(1), nn.Linear(64, 10), wrap

    def forward(self, images):
        return self.wrap(self.linear(self.norm(images).flatten(1)))


@pytest.mark.parametrize(
    "wrap",
    [lambda x: {"logits": x, "other": x}, lambda x: SimpleNamespace(logits=x)],
    ids=["dict", "attribute"],
)
def test_a_model_that_names_its_logits_is_trained_and_loaded(wrap, own, tmp_path):
    net = Named(wrap)
    norm = NormSpec(name="mixture", apply="convert")
    recipe = Recipe(epochs=1, batch_size=32, norm=norm)
    digits = load_data(own("x"), root=None).train
    data = (digits.images, digits.labels)
    train(recipe, tmp_path / "run", device="cpu", model=net, data=data)
    loaded = advnorm.load(tmp_path / "run", model=net, data=data)
    assert loaded(torch.rand(3, 1, 8, 8)).shape == (3, 10)
    assert not int(net.norm.num_batches_tracked)
