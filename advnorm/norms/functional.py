"""Turn calls of ``F.batch_norm`` into layers, through the traced graph of their module.

Only the module whose own forward has the call is traced; the modules inside it stay as they
are. The result is a ``torch.fx.GraphModule`` with a batch norm layer for each call.
"""

from collections.abc import Callable
from inspect import isfunction, signature
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.sources import is_plain, read_foreign
from advnorm.norms.standard import BatchNorm
from advnorm.norms.swap import refuse_losses, swap_layers
from advnorm.norms.takeover import copy_affine

_BUILTIN = "input weight bias running_mean running_var training momentum eps cudnn_enabled"
_ORDERS: dict[Callable[..., Any], list[str]] = {
    F.batch_norm: list(signature(F.batch_norm).parameters),
    torch.batch_norm: _BUILTIN.split(),
}


def lift_calls(model: nn.Module) -> nn.Module:
    """Replace modules whose forward calls batch norm by graphs of layers, in place.

    A subclass of batch norm that does more, in a way that is not known by its structure, is
    replaced too: by a batch norm and the rest. A module that cannot be traced is refused by
    name, with the reason.
    """

    def swap(path: str, parent: nn.Module, module: nn.Module) -> nn.Module | None:
        does_more = isinstance(module, _BatchNorm) and not is_plain(module)
        if does_more and type(module).__module__.startswith("advnorm.norms"):
            return None
        if not does_more and not _calls_batch_norm(module):
            return None
        if read_foreign(path, module) is not None:
            return None
        return _lift(path, module, must=does_more)

    return _repeat(model, swap)


def _repeat(model: nn.Module, swap: Callable[..., nn.Module | None]) -> nn.Module:
    """Swap until nothing changes: a new graph may have modules inside that call it too."""
    count = 1
    while count:
        model, count = swap_layers(model, swap)
    return model


def _calls_batch_norm(module: nn.Module) -> bool:
    """Tell whether the code of a module's class names a function ``batch_norm``."""
    if isinstance(module, fx.GraphModule):
        return any(node.target in _ORDERS for node in module.graph.nodes)
    home = type(module).__module__
    if home.startswith(("torch.", "advnorm.")) or hasattr(module, "batch_norm"):
        return False
    classes = [c for c in type(module).__mro__ if not c.__module__.startswith("torch.")]
    functions = [f for c in classes for f in vars(c).values() if isfunction(f)]
    return any("batch_norm" in _names(f.__code__) for f in functions)


def _names(code: CodeType) -> set[str]:
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


class _ShallowTracer(fx.Tracer):
    """Trace one module's own forward; modules inside are called, not entered."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _lift(path: str, module: nn.Module, *, must: bool) -> nn.Module | None:
    what = f"layer {path or type(module).__name__!r} ({type(module).__name__})"
    hooks = [value for key, value in vars(module).items() if key.endswith("_hooks")]
    if any(hooks) or "forward" in vars(module):
        raise NotImplementedError(
            f"{what} does more than batch norm, and has hooks or a forward that is not of "
            "its class, which a traced graph would lose: remove them before you convert"
        )
    graph, flags = _trace_both_modes(what, module)
    calls = _calls(graph)
    if not calls and must:
        raise NotImplementedError(
            f"{what} does more than batch norm, and calls no F.batch_norm: split it into a "
            "batch norm and the rest before you convert"
        )
    if not calls:
        return None
    if isinstance(module, _BatchNorm):
        refuse_losses(path, module)
    names: dict[str, str] = {}  # calls with the same tensors are one layer
    for node, training in zip(calls, flags, strict=True):
        key = str({**_arguments(node), "input": None})
        if key not in names:
            names[key] = f"batch_norm_{len(names)}"
            module.add_module(names[key], _layer_of(what, module, node, training))
        name = names[key]
        with graph.inserting_before(node):
            new = graph.call_module(name, (_arguments(node)["input"],))
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    graph.eliminate_dead_code(lambda node: node.op != "get_attr")
    graph.lint()
    return fx.GraphModule(module, graph, class_name=type(module).__name__)


def _trace_both_modes(what: str, module: nn.Module) -> tuple[fx.Graph, list[bool]]:
    """Return the graph in evaluation, and whether each call trains in training."""
    before, graphs = module.training, []
    if isinstance(module, _BatchNorm):  # the check of the shape branches on values
        vars(module)["_check_input_dim"] = lambda input: None
    try:
        for flag in (True, False):
            module.training = flag
            graphs.append(_ShallowTracer().trace(module))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise NotImplementedError(
            f"{what} calls F.batch_norm in its forward, which cannot be traced ({reason}): "
            "use nn.BatchNorm2d layers instead"
        ) from error
    finally:
        module.training = before
        vars(module).pop("_check_input_dim", None)
    training, evaluation = graphs
    if _steps(training) != _steps(evaluation):
        raise NotImplementedError(
            f"{what} calls F.batch_norm in a forward that does other steps in training "
            "than in evaluation: use nn.BatchNorm2d layers, and modules such as nn.Dropout"
        )
    return evaluation, [bool(_arguments(node)["training"]) for node in _calls(training)]


def _calls(graph: fx.Graph) -> list[fx.Node]:
    """Return the calls of batch norm on what the module is given.

    On its own weights alone a call is weight standardization, which is no norm.
    """
    given: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or given.intersection(node.all_input_nodes):
            given.add(node)
    return [
        n for n in graph.nodes if n.target in _ORDERS and _arguments(n)["input"] in given
    ]


def _steps(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """Return the steps of a graph, without counters of batches and flags of batch norms."""
    steps: list[tuple[Any, ...]] = []
    calls = set(_calls(graph))
    for node in graph.nodes:
        counter = node.target == "add_" and "num_batches_tracked" in str(node.args[0])
        if node.op != "get_attr" and not counter:
            own = node in calls
            fixed = fx.node.map_arg((node.args, node.kwargs), lambda n: "value")
            steps.append((node.op, str(node.target), "" if own else str(fixed)))
    return steps


def _arguments(node: fx.Node) -> dict[str, Any]:
    defaults = {
        "weight": None,
        "bias": None,
        "training": False,
        "momentum": 0.1,
        "eps": 1e-5,
    }
    named = dict(zip(_ORDERS[node.target], node.args, strict=False))  # type: ignore[index]
    return {**defaults, **named, **node.kwargs}


def _layer_of(what: str, module: nn.Module, node: fx.Node, in_training: bool) -> BatchNorm:
    """Return the batch norm that computes what a call computes."""
    arguments = _arguments(node)
    tensors = {
        name: _tensor_of(what, module, arguments[name])
        for name in ("weight", "bias", "running_mean", "running_var")
    }
    sizes = [len(t) for t in tensors.values() if t is not None]
    always = bool(arguments["training"])
    if not sizes or (always and (tensors["running_mean"] is not None or not in_training)):
        raise NotImplementedError(
            f"{what} calls F.batch_norm without tensors that say its number of features, "
            "or with batch statistics and running ones in evaluation: use nn.BatchNorm2d "
            "layers"
        )
    layer = BatchNorm(
        sizes[0],
        eps=arguments["eps"],
        momentum=arguments["momentum"],
        track_running_stats=not always,
    )
    owner = nn.Module()
    for name in ("weight", "bias"):
        setattr(owner, name, tensors[name])
    like = next(t for t in tensors.values() if t is not None)
    layer.to(device=like.device, dtype=like.dtype)
    copy_affine(owner, layer)
    if not always:
        for name in ("running_mean", "running_var"):
            value = tensors[name]
            assert value is not None
            getattr(layer, name).copy_(value.detach())
    return layer.train(module.training)


def _tensor_of(what: str, module: nn.Module, value: Any) -> Tensor | None:
    """Return a parameter or buffer that a call takes directly; refuse a computed one."""
    if value is None:
        return None
    if isinstance(value, fx.Node) and value.op == "get_attr":
        tensor = module
        for part in str(value.target).split("."):
            tensor = getattr(tensor, part)
        if isinstance(tensor, Tensor):
            return tensor
    raise NotImplementedError(
        f"{what} calls F.batch_norm with parameters or statistics that it computes: use "
        "nn.BatchNorm2d layers, whose parameters are tensors of their own"
    )
