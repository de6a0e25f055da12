"""Every layer equals a slow reference: values, running statistics and all gradients."""

import pytest
import reference
import torch
from torch import nn

from advnorm import norms

EPS, MOMENTUM, ROWS = 0.3, 0.2, 4
SHAPES = [(9, 3), (9, 3, 2, 2)]
LAYERS = {
    "batch": {},
    "mixture": {},
    "dual": {},
    "affine": {},
    "borrowed": {"lender": "clean"},
    "borrowed-adversarial": {"lender": "adversarial"},
}
ROUTES = {
    "split": {"clean": ROWS},
    "clean": {"domain": "clean"},
    "adversarial": {"domain": "adversarial"},
}


def make(name):
    """Return a layer with random parameters and statistics, in double precision."""
    build = norms.NORMS[name.partition("-")[0]]
    layer = build(eps=EPS, momentum=MOMENTUM, **LAYERS[name])(3).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(0.5, 2.0)
        for bn in norms.batch_norms(layer):
            bn.running_mean.normal_()
            bn.running_var.uniform_(0.5, 2.0)
    return layer


def data(shape):
    """Return two domains that overlap, so that a gate is neither 0 nor 1."""
    x = torch.randn(shape, dtype=torch.float64)
    x[ROWS:] = x[ROWS:] * 1.5 + 0.7
    return x


def statistics(bn):
    return bn.running_mean.clone(), bn.running_var.clone()


class Expected:
    """What a layer should do, by the equations; knows nothing of the layer's code."""

    def __init__(self, name, layer, mode, route):
        self.name, self.layer, self.mode = name, layer, mode
        self.rows = {"clean": 9, "adversarial": 0}.get(
            route.get("domain"), route.get("clean")
        )
        self.after = {}

    def measured(self, bn, x):
        """Moments for a domain's rows, and what becomes of the running ones."""
        if self.mode == "running" or not len(x):
            self.after[bn] = statistics(bn)
            return statistics(bn)
        moved = reference.moved(*statistics(bn), x.detach(), MOMENTUM)
        self.after[bn] = moved if self.mode == "train" else statistics(bn)
        return reference.moments(x)[:2]

    def __call__(self, x):
        clean, adversarial = x[: self.rows], x[self.rows :]
        kind = self.name.partition("-")[0]
        return getattr(self, kind)(x, clean, adversarial)

    def batch(self, x, clean, adversarial):
        w, b = self.layer.weight, self.layer.bias
        return reference.batch_norm(x, *self.measured(self.layer, x), EPS, w, b)

    def mixture(self, x, clean, adversarial):
        parts = []
        for bn, part in ((self.layer.clean, clean), (self.layer.adversarial, adversarial)):
            moments = self.measured(bn, part)
            if len(part):
                parts.append(reference.batch_norm(part, *moments, EPS, bn.weight, bn.bias))
        return torch.cat(parts)

    def affine(self, x, clean, adversarial):
        statistics = self.measured(self.layer, x)
        owners = (self.layer.clean, self.layer.adversarial)
        return torch.cat(
            [
                reference.batch_norm(part, *statistics, EPS, own.weight, own.bias)
                for own, part in zip(owners, (clean, adversarial), strict=True)
                if len(part)
            ]
        )

    def borrowed(self, x, clean, adversarial):
        lender_rows = {"clean": clean, "adversarial": adversarial}[self.layer.lender]
        moments = self.measured(self.layer, lender_rows if 0 < self.rows < len(x) else x)
        return reference.batch_norm(x, *moments, EPS, self.layer.weight, self.layer.bias)

    def dual(self, x, clean, adversarial):
        one = self.measured(self.layer.clean, clean)
        other = self.measured(self.layer.adversarial, adversarial)
        w, b = self.layer.weight, self.layer.bias
        return reference.dual_norm(x, one, other, EPS, w, b)[0]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", SHAPES, ids=["1-D", "2-D"])
@pytest.mark.parametrize("mode", ["train", "batch", "running"])
@pytest.mark.parametrize("route", ROUTES)
def test_equals_the_reference(name, shape, mode, route):
    layer, x = make(name), data(shape)
    weights = torch.randn(shape, dtype=torch.float64)
    parameters = list(layer.parameters())
    expected = Expected(name, layer, mode, ROUTES[route])

    reference_x = x.clone().requires_grad_()
    wanted = expected(reference_x)
    wanted_grads = torch.autograd.grad(
        (wanted * weights).sum(), [reference_x, *parameters], allow_unused=True
    )
    layer_x = x.clone().requires_grad_()
    with norms.mode(layer, mode), norms.route(layer, **ROUTES[route]):
        got = layer(layer_x)
    got_grads = torch.autograd.grad(
        (got * weights).sum(), [layer_x, *parameters], allow_unused=True
    )

    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
    for one, other in zip(got_grads, wanted_grads, strict=True):
        zero = torch.zeros(())
        torch.testing.assert_close(
            zero if one is None else one,
            zero if other is None else other,
            rtol=0,
            atol=1e-9,
        )
    for bn, (mean, var) in expected.after.items():
        torch.testing.assert_close(bn.running_mean, mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(bn.running_var, var, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_agree_with_finite_differences(name):
    layer = make(name)
    x = data((7, 3, 2)).requires_grad_()
    with norms.mode(layer, "batch"), norms.route(layer, clean=3):
        assert torch.autograd.gradcheck(layer, (x,), atol=1e-7)


def test_a_batch_counts_once_and_the_momentum_may_be_the_plain_average():
    layer = norms.BorrowedNorm(3, momentum=None).double()
    batches = [data((9, 3)) for _ in range(3)]
    for x in batches:
        with norms.route(layer, clean=ROWS):
            layer(x)
    means = torch.stack([x[:ROWS].mean(0) for x in batches])
    torch.testing.assert_close(layer.running_mean, means.mean(0))
    assert layer.num_batches_tracked == 3


def test_dual_with_a_one_sided_gate_is_batch_norm():
    """Section F: when p_cl is always 1, we recover the normal BN."""
    dual, bn = make("dual").eval(), norms.BatchNorm(3, eps=EPS).double().eval()
    dual.adversarial.running_mean.fill_(1e3)
    bn.load_state_dict(
        {
            **dual.clean.state_dict(),
            "weight": dual.weight.detach(),
            "bias": dual.bias.detach(),
        }
    )
    x = data((9, 3, 2, 2))
    torch.testing.assert_close(dual(x), bn(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["train", "running"])
def test_dual_with_a_correct_hard_gate_is_mixture(mode):
    """Section F: binary and always correct p give the Separate BN."""
    dual, mixture = make("dual"), make("mixture")
    x = data((9, 3, 2, 2))
    x[ROWS:] += 1e3
    for domain in ("clean", "adversarial"):
        bn = getattr(dual, domain)
        bn.running_mean.fill_(0.0 if domain == "clean" else 1e3)
        mixture.branch(domain).load_state_dict(
            {**bn.state_dict(), "weight": dual.weight.detach(), "bias": dual.bias.detach()}
        )
    outputs = []
    for layer in (dual, mixture):
        with norms.mode(layer, mode), norms.route(layer, clean=ROWS):
            outputs.append(layer(x))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-9)


def test_dual_needs_no_route_with_running_statistics():
    layer, x = make("dual").eval(), data((9, 3, 2, 2))
    with norms.route(layer, domain="clean"):
        clean = layer(x)
    torch.testing.assert_close(layer(x), clean, rtol=0, atol=1e-12)


def test_the_likelihood_loss_is_equation_21_summed_over_positions_and_layers():
    first, second, x = make("dual"), make("dual"), data((9, 3, 2, 2))
    model = nn.Sequential(first, second)
    expected = 0.0
    with norms.mode(model, "batch"), norms.route(model, clean=ROWS):
        with norms.likelihood(model) as terms:
            model(x)
        for layer, seen in ((first, x), (second, first(x))):
            one, other = seen[:ROWS], seen[ROWS:]
            branch_moments = [reference.moments(part)[:2] for part in (one, other)]
            gates = reference.dual_norm(
                seen, *branch_moments, EPS, layer.weight, layer.bias
            )[1]
            gates = gates.view(9, 4)
            expected -= torch.log(gates[:ROWS]).sum() + torch.log(1 - gates[ROWS:]).sum()
    assert len(terms) == 2
    torch.testing.assert_close(sum(terms), expected / 9, rtol=0, atol=1e-9)
    assert first._terms is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_dual_stays_finite_in_half_precision(dtype, scale):
    """512 channels: the sum of squares alone would overflow float16."""
    layer = norms.DualNorm(512)
    x = (torch.randn(8, 512, 4, 4) * scale).to(dtype).requires_grad_()
    with norms.route(layer, clean=4), norms.likelihood(layer) as terms:
        y = layer(x)
    (y.float().square().mean() + sum(terms)).backward()
    assert y.dtype == dtype and torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    for parameter in layer.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_dual_computes_its_gate_in_single_precision_under_autocast():
    layer, x = norms.DualNorm(64), torch.randn(8, 64, 4, 4)
    with norms.mode(layer, "batch"), norms.route(layer, clean=4):
        plain = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            auto = layer(x)
    assert torch.equal(plain, auto)


@pytest.mark.parametrize("name", LAYERS)
def test_state_dicts_round_trip(name):
    one, other, x = make(name), make(name), data((9, 3))
    assert not torch.equal(one.eval()(x), other.eval()(x))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.eval()(x), other.eval()(x))


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_one_in_batch_mode_is_refused_with_the_remedy(name):
    layer = make(name)
    with norms.mode(layer, "batch"), pytest.raises(ValueError, match="at least 2 samples"):
        layer(data((9, 3))[:1])


def test_a_wrong_lender_is_refused():
    with pytest.raises(ValueError, match="must be 'clean' or 'adversarial', not 'pgd'"):
        norms.BorrowedNorm(3, lender="pgd")


@pytest.mark.parametrize("name", ["mixture", "affine"])
def test_norms_in_selected_places_and_their_parameters(name):
    some = norms.SelectiveNorm(norms.NORMS[name](), [1])
    model = nn.Sequential(*(some(4) for _ in range(3)), nn.Linear(4, 2), nn.GroupNorm(2, 4))
    kinds = [type(layer).__name__ for layer in model]
    layer = {"mixture": "MixtureNorm", "affine": "AffineNorm"}[name]
    assert kinds == ["Identity", layer, "Identity", "Linear", "GroupNorm"]
    assert len(list(norms.norm_parameters(model))) == 4 + 2


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("route", ROUTES)
def test_an_activation_may_change_the_output_in_place(name, route):
    layer = make(name).float()
    model = nn.Sequential(nn.Conv2d(3, 3, 1), layer, nn.ReLU(inplace=True))
    with norms.route(model, **ROUTES[route]):
        model(torch.randn(9, 3, 2, 2)).sum().backward()
    assert torch.isfinite(model[0].weight.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["train", "batch", "running"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_half_precision_run_near_those_of_double(name, mode, dtype):
    layer, x = make(name), data((9, 3, 2, 2))
    outputs = []
    for kind in (torch.float64, dtype):
        with norms.mode(layer.to(kind), mode), norms.route(layer, clean=ROWS):
            outputs.append(layer(x.to(kind)))
    assert outputs[1].dtype == dtype
    torch.testing.assert_close(outputs[1].double(), outputs[0], rtol=0.05, atol=0.1)


@pytest.mark.parametrize("name", ["dual", "borrowed", "affine"])
def test_a_second_derivative_is_refused_and_not_silently_wrong(name):
    """A loss that is linear in the output, with fixed parameters: nothing else would tell."""
    layer = make(name).requires_grad_(False)
    x = data((9, 3)).requires_grad_()
    with norms.mode(layer, "batch"), norms.route(layer, clean=ROWS):
        y = layer(x)
    with pytest.raises(RuntimeError, match=r"norms\.twice"):
        torch.autograd.grad((y * torch.randn_like(y)).sum(), x, create_graph=True)


@pytest.mark.parametrize("mode", ["batch", "running"])
@pytest.mark.parametrize("name", ["dual", "borrowed", "mixture", "affine"])
def test_second_derivatives_are_right_inside_twice_differentiable(name, mode):
    """The same values and first derivatives, and a second one that finite steps confirm."""
    layer, x = make(name), data((7, 3, 2)).requires_grad_()

    def run(x):
        with norms.mode(layer, mode), norms.route(layer, clean=3):
            return layer(x)

    once = run(x)
    (first,) = torch.autograd.grad(once.square().sum(), x)
    with norms.twice_differentiable(layer):
        torch.testing.assert_close(run(x), once, rtol=1e-10, atol=1e-10)
        (again,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        torch.testing.assert_close(again, first, rtol=1e-9, atol=1e-9)
        torch.autograd.gradgradcheck(run, (x,))
    assert all(r.fused for r in norms.routed_layers(layer)) and "fused" not in vars(layer)


@pytest.mark.parametrize("eps", [1e-5, 1.0, 1e3])
@pytest.mark.parametrize("name", ["dual", "borrowed", "affine"])
def test_running_variances_do_not_depend_on_the_constant_c(name, eps):
    """Taken back from 1 / sqrt(var + c), a small variance would be lost, or negative."""
    layer = norms.NORMS[name](eps=eps, momentum=1.0)(2)
    x = torch.randn(40, 2) * torch.tensor([1e-3, 0.0]) + 5
    with norms.route(layer, clean=20):
        layer(x)
    bn = layer.clean if name == "dual" else layer
    measured = x if name == "affine" else x[:20]
    expected = measured.double().var(0).float()
    torch.testing.assert_close(bn.running_var, expected, rtol=1e-2, atol=1e-12)
    assert (bn.running_var >= 0).all()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", [(6, 1, 3, 3), (6, 2), (6,)], ids=str)
def test_another_number_of_features_is_refused(name, shape):
    layer = make(name).float()
    for mode in ("train", "running"):
        scopes = norms.mode(layer, mode), norms.route(layer, clean=3)
        with scopes[0], scopes[1], pytest.raises(ValueError, match="norm of 3 features"):
            layer(torch.randn(shape))


@pytest.mark.parametrize("settings", [{"eps": -1.0}, {"momentum": 7.0}, {"momentum": -0.1}])
def test_constants_without_sense_are_refused(settings):
    with pytest.raises(ValueError, match="momentum from 0 to 1"):
        norms.NORMS["mixture"](**settings)(3)


def test_a_momentum_of_zero_stands_still():
    layer = norms.BorrowedNorm(3, momentum=0.0)
    with norms.route(layer, clean=4):
        layer(torch.randn(9, 3) + 5)
    assert (layer.running_mean == 0).all()


def test_likelihood_scopes_nest():
    layer = norms.DualNorm(3)
    with norms.likelihood(layer) as outer:
        with norms.likelihood(layer) as inner, norms.route(layer, clean=3):
            layer(torch.randn(6, 3))
        with norms.route(layer, clean=3):
            layer(torch.randn(6, 3))
    assert len(inner) == 1 and len(outer) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_backward_pass_inside_autocast_is_in_single_precision(dtype):
    layer, x = norms.DualNorm(64), torch.randn(8, 64, 4, 4)
    grads = []
    for auto in (False, True):
        leaf = x.clone().requires_grad_()
        scopes = norms.mode(layer, "batch"), norms.route(layer, clean=4)
        with scopes[0], scopes[1], torch.autocast("cpu", dtype=dtype, enabled=auto):
            layer(leaf).sin().sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)


def test_a_gate_of_equal_domains_stays_a_number_for_values_whose_squares_overflow():
    """Very deep networks with random statistics have such values."""
    layer = norms.NORMS["dual"]()(2).eval()
    x = torch.tensor([[1e25, -1e25], [1.0, 2.0]])
    torch.testing.assert_close(layer(x), nn.BatchNorm1d(2).eval()(x))


def test_gamma_may_start_uniform():
    torch.manual_seed(0)
    layer = norms.NORMS["batch"](start="uniform", eps=0.5)(1000)
    weight = layer.weight.detach()
    assert 0 <= weight.min() < 0.01 and 0.99 < weight.max() < 1, "drawn from U(0, 1)"
    assert abs(float(weight.mean()) - 0.5) < 0.05 and layer.eps == 0.5
    assert not layer.bias.any()
    assert norms.NORMS["batch"]()(3).weight.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="must be 'ones' or 'uniform', not 'normal'"):
        norms.NORMS["batch"](start="normal")
    with pytest.raises(ValueError, match="set affine=true"):
        norms.NORMS["batch"](start="uniform", affine=False)
