"""Options by name, and sentences for what is not there."""

import pytest
import torch

from advnorm.models import MODELS, build, options
from advnorm.norms import NORMS

NONE = NORMS["none"]()


def make(name, shape=(3, 32, 32), **options):
    return build(name, shape=shape, classes=10, norm=NONE, options=options)


def test_options_are_the_own_settings_of_a_model():
    assert options("lenet5") == {}
    assert options("linear") == {"start": "uniform", "output": "softmax"}
    assert options("mlp") == {
        "width": 1000,
        "depth": 2,
        "start": "uniform",
        "activation": "relu",
        "tile": 1,
    }
    assert options("wide_resnet") == {
        "depth": 28,
        "widen": 10,
        "dropout": 0.0,
        "recompute": False,
    }


def test_options_reach_the_model():
    model = make("mlp", (2,), width=5, depth=3)
    assert [tuple(p.shape) for p in model.parameters() if p.dim() == 2] == [
        (5, 2),
        (5, 5),
        (5, 5),
        (10, 5),
    ]


def test_width_narrows_every_layer_of_a_cnn_in_step():
    kernels = [p.shape for p in make("cnn_medium", (1, 16, 16), width=4).parameters()]
    assert [tuple(shape) for shape in kernels if len(shape) > 1] == [
        (4, 1, 3, 3),
        (4, 4, 4, 4),
        (8, 4, 3, 3),
        (8, 8, 4, 4),
        (64, 8),
        (64, 64),
        (10, 64),
    ]


def test_mlp_without_hidden_layers_is_linear():
    assert [tuple(p.shape) for p in make("mlp", (2,), depth=0).parameters()] == [
        (10, 2),
        (10,),
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_option_is_a_plain_value(name):
    assert all(type(value) in (int, float, bool, str) for value in options(name).values())


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "mlp",
            {"widht": 3},
            "no option of model 'mlp' called 'widht': did you mean 'width'",
        ),
        (
            "cnn_small",
            {"width": 0},
            "option 'width' of model 'cnn_small': 0 should be greater than 0",
        ),
        ("lenet5", {"width": 3}, "model 'lenet5' has no options: remove 'width'"),
        (
            "linear",
            {"start": "he"},
            "option 'start' of model 'linear': 'he' should be 'uniform', 'normal' or 'zeros'",
        ),
        (
            "mlp",
            {"width": 2.5},
            "option 'width' of model 'mlp': 2.5 should be a valid integer",
        ),
        (
            "mlp",
            {"width": True},
            "option 'width' of model 'mlp': True should be a valid integer",
        ),
        (
            "resnet20",
            {"recompute": 1},
            "option 'recompute' of model 'resnet20': 1 should be a valid boolean",
        ),
        ("lenet", {}, "no model 'lenet': did you mean 'lenet5'"),
        ("mlp", {"width": 0}, "option 'width' of model 'mlp': 0 should be greater than 0"),
        (
            "mlp",
            {"depth": -1},
            "option 'depth' of model 'mlp': -1 should be greater than or equal to 0",
        ),
        (
            "vgg11",
            {"width": 0},
            "option 'width' of model 'vgg11': 0 should be greater than 0",
        ),
        (
            "wide_resnet",
            {"depth": 27},
            "wide_resnet needs a depth of 10, 16, 22, ..., not 27",
        ),
        (
            "wide_resnet",
            {"depth": 4},
            "wide_resnet needs a depth of 10, 16, 22, ..., not 4",
        ),
        (
            "wide_resnet",
            {"widen": 0},
            "option 'widen' of model 'wide_resnet': 0 should be greater than 0",
        ),
        (
            "wide_resnet40_2",
            {"dropout": 1},
            "option 'dropout' of model 'wide_resnet40_2': 1 should be less than 1",
        ),
        (
            "fixup_wide_resnet40_2",
            {"final_norm": True},
            "final_norm of fixup_wide_resnet40_2 needs a norm: choose one other than 'none'",
        ),
    ],
)
def test_wrong_option_is_refused_with_a_sentence(name, options, sentence):
    with pytest.raises(ValueError) as refusal:
        make(name, **options)
    assert str(refusal.value).startswith(sentence)


def test_an_int_serves_as_a_float():
    make("wide_resnet", depth=10, widen=1, dropout=0)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"linear", "mlp"}))
def test_a_vector_is_no_image(name):
    with pytest.raises(
        ValueError, match=r"takes images of shape \(channels, height, width\), not \(2,\)"
    ):
        make(name, (2,))


@pytest.mark.parametrize(
    ("name", "min_size"),
    [
        ("lenet5", 4),
        ("cnn_cleverhans", 28),
        ("cnn_small", 10),
        ("cnn_medium", 16),
        ("vgg8", 32),
        ("vgg19", 32),
    ],
)
def test_smallest_image_fits_and_a_smaller_one_is_refused(name, min_size):
    images = torch.rand(2, 1, min_size, min_size)
    assert make(name, (1, min_size, min_size))(images).shape == (2, 10)
    sentence = f"{name} takes images of at least {min_size}x{min_size}, not .*data.size"
    with pytest.raises(ValueError, match=sentence):
        make(name, (1, min_size, min_size - 1))


def test_empty_shape_and_no_classes_are_refused():
    with pytest.raises(ValueError, match="mlp takes inputs of a shape like"):
        make("mlp", ())
    with pytest.raises(ValueError, match="at least one class, not 0"):
        build("mlp", shape=(2,), classes=0, norm=NONE)
