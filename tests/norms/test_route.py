"""Routes and modes are restored: errors, nesting, threads, copies, compile and DDP."""

import copy
import io
import pickle
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from advnorm import norms
from advnorm.norms.route import Route


def net(norm="mixture"):
    build = norms.NORMS[norm]()
    return nn.Sequential(
        nn.Linear(6, 8), build(8), nn.ReLU(), nn.Linear(8, 8), build(8), nn.Linear(8, 3)
    )


def routes(model):
    return [layer.route for layer in norms.routed_layers(model)]


def test_a_route_is_restored_after_an_error_and_when_nested():
    model = net()
    with pytest.raises(RuntimeError, match="stop"), norms.route(model, domain="clean"):
        assert routes(model) == [Route(domain="clean")] * 2
        with norms.route(model, clean=3):
            assert routes(model) == [Route(clean=3)] * 2
        assert routes(model) == [Route(domain="clean")] * 2
        raise RuntimeError("stop")
    assert routes(model) == [Route()] * 2 and "route" not in vars(
        norms.routed_layers(model)[0]
    )


@pytest.mark.parametrize("name", ["mixture", "affine"])
def test_without_a_route_a_batch_is_adversarial(name):
    model, x = net(name).eval(), torch.randn(5, 6)
    nn.init.constant_(norms.routed_layers(model)[0].clean.bias, 9.0)
    assert norms.has_branches(model) and norms.active_branch(model) == "adversarial"
    with norms.route(model, domain="adversarial"):
        expected = model(x)
    assert torch.equal(model(x), expected)
    with norms.route(model, domain="clean"):
        assert not torch.equal(model(x), expected)


@pytest.mark.parametrize("name", ["mixture", "dual", "borrowed", "affine"])
def test_a_route_that_does_not_fit_the_batch_is_refused(name):
    model = net(name)
    with (
        norms.route(model, clean=9),
        pytest.raises(ValueError, match=r"9 clean rows.*batch has 5"),
    ):
        model(torch.randn(5, 6))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, "either"),
        ({"clean": 3, "domain": "clean"}, "either"),
        ({"domain": "dirty"}, "no domain 'dirty'"),
        ({"clean": -1}, "number of clean rows"),
    ],
)
def test_a_wrong_route_is_refused(settings, words):
    with pytest.raises(ValueError, match=words), norms.route(net(), **settings):
        pass


def test_other_layers_ignore_the_route():
    model, x = net("batch"), torch.randn(5, 6)
    with norms.route(model, clean=99), norms.mode(model, "batch"):
        routed = model(x)
    with norms.mode(model, "batch"):
        assert torch.equal(routed, model(x))


def test_threads_with_models_of_their_own_do_not_meet():
    models = [net() for _ in range(4)]
    errors = []

    def work(index):
        try:
            for count in range(100):
                domain = ("clean", "adversarial")[(index + count) % 2]
                mode = ("train", "batch", "running")[(index + count) % 3]
                with (
                    norms.mode(models[index], mode),
                    norms.route(models[index], domain=domain),
                ):
                    models[index](torch.randn(4, 6))
                    assert {r.domain for r in routes(models[index])} == {domain}
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for model in models:
        assert routes(model) == [Route()] * 2
        assert all(
            bn.training and bn.track_running_stats for bn in norms.batch_norms(model)
        )


def test_two_threads_take_turns_in_one_model():
    """Interleaved scopes would put back each other's state, and leave it behind."""
    model, errors = net(), []

    def work(domain, mode):
        try:
            for _ in range(50):
                with norms.mode(model, mode), norms.route(model, domain=domain):
                    assert {r.domain for r in routes(model)} == {domain}
                    model(torch.randn(4, 6))
                    assert {r.domain for r in routes(model)} == {domain}
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in (("clean", "batch"), ("adversarial", "running"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and routes(model) == [Route()] * 2
    assert all(bn.training and bn.track_running_stats for bn in norms.batch_norms(model))


def copied(model):
    return copy.deepcopy(model)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("clone", [copied, pickled, saved])
@pytest.mark.parametrize("name", ["mixture", "dual", "borrowed", "affine"])
def test_a_copy_has_one_route_of_its_own(clone, name):
    model = net(name)
    with norms.route(model, clean=2), norms.likelihood(model):
        model(torch.randn(4, 6))  # a graph is alive, and must not stand in the way
    other = clone(model)
    with norms.route(other, clean=3):
        assert routes(other) == [Route(clean=3)] * 2
        assert routes(model) == [Route()] * 2
    with norms.route(model, domain="clean"):
        assert routes(other) == [Route()] * 2
    x = torch.randn(5, 6)
    assert torch.equal(model.eval()(x), other.eval()(x))


@pytest.mark.parametrize("name", ["mixture", "dual", "borrowed", "affine"])
def test_recomputed_blocks_see_the_route_of_their_forward_pass(name):
    from advnorm.models import build

    results = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model = build(
            "preact_resnet18",
            shape=(3, 8, 8),
            classes=3,
            norm=norms.NORMS[name](),
            options={"width": 2, "recompute": recompute},
        ).double()
        x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()
        with norms.route(model, clean=2):
            loss = model(x).square().sum()
        loss.backward()  # the route's scope has ended
        results.append([p.grad for p in model.parameters()] + list(model.buffers()))
    for one, other in zip(*results, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_freezing_makes_every_mode_running_and_ends():
    model, x = net("mixture"), torch.randn(8, 6)
    before = [b.clone() for b in model.buffers()]
    with norms.freeze_statistics(model):
        for mode in ("train", "batch", "running"):
            with norms.mode(model, mode), norms.route(model, clean=4):
                model(x)
        model(x)
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    with norms.mode(model, "train"):
        model(x)
    assert not all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))


def test_freezing_is_undone_after_an_error_and_may_be_nested():
    model = net("batch")
    with pytest.raises(RuntimeError, match="stop"), norms.freeze_statistics(model):
        with norms.freeze_statistics(model):
            pass
        assert not norms.batch_norms(model)[0].training
        with norms.mode(model, "train"):
            assert not norms.batch_norms(model)[0].training
        raise RuntimeError("stop")
    assert norms.batch_norms(model)[0].training


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["batch", "mixture", "dual", "borrowed", "affine"])
def test_modes_and_routes_reach_through_ddp(one_rank, name):
    plain = net(name)
    wrapped = DistributedDataParallel(copy.deepcopy(plain))
    x = torch.randn(8, 6)
    outputs = []
    for model in (plain, wrapped):
        with norms.mode(model, "batch"), norms.route(model, clean=3):
            outputs.append(model(x))
        assert set(routes(model)) <= {Route()}
    torch.testing.assert_close(*outputs)
    outputs[1].sum().backward()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    ["batch", pytest.param("mixture", marks=pytest.mark.ci), "dual", "borrowed", "affine"],
)
def test_modes_and_routes_hold_under_compile(name):
    torch.compiler.reset()
    model, x = net(name).double(), torch.randn(8, 6).double()
    compiled = torch.compile(model)
    for mode in ("train", "batch", "running"):
        for route in (
            {"clean": 3},
            {"clean": 5},
            {"domain": "clean"},
            {"domain": "adversarial"},
        ):
            outputs, moved = [], []
            for run in (model, compiled):
                state = copy.deepcopy(model.state_dict())
                with norms.mode(run, mode), norms.route(run, **route):
                    outputs.append(run(x))
                moved.append(copy.deepcopy(model.state_dict()))
                model.load_state_dict(state)
            torch.testing.assert_close(*outputs)
            for key in moved[0]:
                torch.testing.assert_close(moved[0][key], moved[1][key])
