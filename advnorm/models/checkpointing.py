r"""Residual blocks whose activations are recomputed in the backward pass.

A block then saves only its input (Chen et al., 2016), so that a network of any depth costs
one more forward pass and the memory of one block. The second run of a block must repeat the
first exactly and have no side effects: running statistics move once a step, and the mode of
the forward pass holds in the recomputation, even if its scope has ended by then.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.utils.checkpoint import checkpoint


class Blocks(nn.Sequential):
    """Blocks in sequence, with ``recompute`` one checkpoint a block.

    The names of parameters and buffers do not depend on ``recompute``.
    """

    def __init__(self, *blocks: nn.Module, recompute: bool = False) -> None:
        super().__init__(*blocks)
        self.recompute = recompute

    def forward(self, input: Tensor) -> Tensor:
        """Run all blocks."""
        for block in self:
            input = checkpointed(block, input) if self.recompute else block(input)
        return input


def checkpointed(block: nn.Module, input: Tensor) -> Tensor:
    """Run ``block`` now, and once more when its gradient is needed."""
    if not torch.is_grad_enabled() or isinstance(input, Proxy):
        output: Tensor = block(input)
    elif torch.compiler.is_compiling():
        # The compiler keeps side effects to the first run, unless it gives up on the block.
        with torch._dynamo.error_on_graph_break(True):
            output = checkpoint(block, input, use_reentrant=False)
    else:
        contexts = partial(_contexts, block)
        output = checkpoint(block, input, use_reentrant=False, context_fn=contexts)
    return output


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of the first and of the second run."""
    return nullcontext(), _SavedState(block)


class _SavedState(AbstractContextManager[None]):
    """Restores the state that a block had at construction, on copies that are discarded.

    That is the attributes of every layer (training, which statistics, ...) and its buffers;
    parameters are shared. May be entered several times, as the backward pass of a retained
    graph does.
    """

    def __init__(self, block: nn.Module) -> None:
        self.saved = [(layer, _copy(vars(layer))) for layer in block.modules()]
        self.current: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.current = [vars(layer) for layer, _ in self.saved]
        for layer, state in self.saved:
            object.__setattr__(layer, "__dict__", _copy(state))

    def __exit__(self, *error: object) -> None:
        for (layer, _), state in zip(self.saved, self.current, strict=True):
            object.__setattr__(layer, "__dict__", state)


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    """Copy a layer's attributes and, by value, its buffers."""
    buffers = {
        name: None if buffer is None else buffer.detach().clone()
        for name, buffer in state["_buffers"].items()
    }
    return {**state, "_buffers": buffers}
