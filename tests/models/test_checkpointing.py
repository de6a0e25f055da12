"""Recomputing activations changes memory, and nothing else."""

import pytest
import torch
from torch import nn

from advnorm.models import build, options
from advnorm.models.checkpointing import Blocks
from advnorm.norms import NORMS, mode

SMALLEST = {"width": 4, "widen": 1, "dropout": 0.3}
RESIDUAL = [
    "resnet20",
    "resnet18",
    "resnet50",
    "preact_resnet18",
    "wide_resnet",
    "fixup_resnet20",
    "fixup_wide_resnet40_2",
]


def pair(name: str, norm: str | None = None) -> tuple[nn.Module, nn.Module]:
    """Return the same network without and with recomputation."""
    norm = norm or ("none" if name.startswith("fixup") else "batch")
    settings = {key: SMALLEST[key] for key in options(name) if key in SMALLEST}
    if name == "wide_resnet":
        settings["depth"] = 10
    plain = build(name, shape=(3, 16, 16), classes=3, norm=NORMS[norm](), options=settings)
    for parameter in plain.parameters():  # Fixup's zeros would hide a difference
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    checkpointed = build(
        name,
        shape=(3, 16, 16),
        classes=3,
        norm=NORMS[norm](),
        options={**settings, "recompute": True},
    )
    checkpointed.load_state_dict(plain.state_dict())
    return plain, checkpointed


def step(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)  # for dropout
    logits = model(images)
    nn.functional.cross_entropy(logits, torch.arange(len(images)) % 3).backward()
    return logits.detach()


def assert_same(plain: nn.Module, checkpointed: nn.Module) -> None:
    for (name, ours), theirs in zip(
        checkpointed.named_parameters(), plain.parameters(), strict=True
    ):
        assert torch.equal(ours.grad, theirs.grad), name
    for (name, ours), theirs in zip(
        checkpointed.named_buffers(), plain.buffers(), strict=True
    ):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("name", RESIDUAL)
def test_outputs_gradients_and_buffers_are_exactly_the_same(name):
    plain, checkpointed = pair(name)
    for _ in range(2):
        images = torch.rand(3, 3, 16, 16)
        assert torch.equal(step(plain, images), step(checkpointed, images))
        assert_same(plain, checkpointed)
    counts = {int(b) for key, b in checkpointed.named_buffers() if key.endswith("tracked")}
    assert counts <= {2}


@pytest.mark.parametrize("name", RESIDUAL)
def test_input_gradient_works_with_parameters_frozen(name):
    plain, checkpointed = pair(name)
    images = torch.rand(3, 3, 16, 16, requires_grad=True)
    gradients = []
    for model in (plain, checkpointed):
        model.requires_grad_(False)
        torch.manual_seed(3)
        with mode(model, "running"):
            gradients.append(
                torch.autograd.grad(model(images).logsumexp(1).sum(), images)[0]
            )
    assert gradients[0].any() and torch.equal(*gradients)


@pytest.mark.parametrize("name", ["train", "batch", "running"])
def test_mode_of_the_forward_pass_holds_after_its_scope(name):
    # Only blocks: a norm outside of them keeps no copy of the running statistics.
    plain, checkpointed = (model.blocks for model in pair("resnet20"))
    maps = torch.rand(3, 4, 8, 8)
    with mode(plain, name):
        plain(maps).square().sum().backward()
    with mode(checkpointed, name):
        loss = checkpointed(maps).square().sum()
    for model in (plain, checkpointed):
        with torch.no_grad(), mode(model, "train"):
            model(maps + 1)  # moves the running statistics between the two runs
        model.eval()
    loss.backward()
    assert_same(plain, checkpointed)
    assert not any(layer.training for layer in checkpointed.modules())


def test_layer_frozen_by_the_caller_stays_frozen():
    plain, checkpointed = pair("resnet20")
    for model in (plain, checkpointed):
        model.blocks[1].eval()
        step(model, torch.ones(2, 3, 16, 16))
    assert_same(plain, checkpointed)
    assert int(checkpointed.blocks[1].norm1.num_batches_tracked) == 0


def test_graph_may_be_retained():
    plain, checkpointed = pair("resnet20")
    images = torch.rand(2, 3, 16, 16)
    for model in (plain, checkpointed):
        loss = model(images).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same(plain, checkpointed)


def test_every_run_starts_from_the_state_of_the_first():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, inputs):
            self.count += 1
            return (inputs * self.count.clone()).exp()

    inputs = torch.ones(1, requires_grad=True)
    block = Counts()
    output = Blocks(block, recompute=True)(inputs)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(output, inputs, retain_graph=True)
        torch.testing.assert_close(gradient, torch.ones(1).exp())
    assert block.count.item() == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # by the compiler
@pytest.mark.parametrize(
    "norm", [pytest.param("batch", marks=pytest.mark.ci), "dual", "mixture"]
)
def test_compiled_network_moves_statistics_once(norm):
    torch.compiler.reset()
    plain, checkpointed = pair("resnet20", norm)
    images = torch.rand(4, 3, 16, 16)
    expected = step(plain, images)
    output = step(torch.compile(checkpointed, backend="aot_eager"), images)
    torch.testing.assert_close(output, expected)
    for (name, ours), theirs in zip(
        checkpointed.named_buffers(), plain.buffers(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, msg=name)


class Counting(nn.Linear):
    """Counts in Python, which a compiler cannot keep to the first run."""

    count = 0

    def forward(self, input):
        self.count += 1
        return super().forward(input)


def test_a_block_that_cannot_be_compiled_is_refused_not_run_twice():
    torch.compiler.reset()
    blocks = torch.compile(Blocks(Counting(2, 2), recompute=True), backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="count"):
        blocks(torch.ones(1, 2))


def test_block_runs_twice_for_a_gradient_and_once_without():
    runs = []
    block = nn.Linear(2, 2)
    block.register_forward_pre_hook(lambda *_: runs.append(None))
    blocks = Blocks(block, recompute=True)
    blocks(torch.ones(1, 2)).square().sum().backward()
    assert len(runs) == 2
    with torch.no_grad():
        blocks(torch.ones(1, 2))
    assert len(runs) == 3


def test_only_the_inputs_of_blocks_are_kept():
    plain, checkpointed = pair("wide_resnet")
    kept = []
    for model in (plain, checkpointed):
        sizes: dict[int, int] = {}

        def pack(tensor, sizes=sizes):
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = model.blocks(torch.rand(2, 16, 16, 16, requires_grad=True))
        kept.append(sum(sizes.values()))
        del logits
    assert kept[1] < kept[0] / 4


def test_error_in_the_second_run_leaves_the_block_as_it_was():
    class Fragile(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = NORMS["batch"]()(2)
            self.broken = []

        def forward(self, inputs):
            if self.broken:
                raise RuntimeError("second run")
            return self.norm(inputs).exp()

    block = Fragile()
    output = Blocks(block, recompute=True)(torch.rand(4, 2))
    block.broken.append(True)
    buffers = dict(block.norm.named_buffers())
    block.eval()
    with pytest.raises(RuntimeError, match="second run"):
        output.sum().backward()
    assert not block.training
    assert all(buffers[key] is value for key, value in block.norm.named_buffers())


@pytest.mark.parametrize("name", RESIDUAL)
def test_names_in_a_checkpoint_do_not_depend_on_recomputation(name):
    with torch.device("meta"):
        norm = NORMS["none" if name.startswith("fixup") else "batch"]()
        states = [
            build(
                name, shape=(3, 32, 32), classes=3, norm=norm, options={"recompute": flag}
            ).state_dict()
            for flag in (False, True)
        ]
    assert list(states[0]) == list(states[1])
