"""The ``forward`` of a module as source code: torch.fx follows it, children are calls."""

import ast
from inspect import getsource
from textwrap import dedent

from torch import nn
from torch.fx import Graph, Tracer
from torch.fx.proxy import TraceError

from advnorm.runs.export.dual_inference import InferenceDualNorm

_FROM_TORCH = {"torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"}


def forward_source(path: str, module: nn.Module) -> str:
    """Return ``def forward(self, ...)`` of a module, with calls of its children.

    Numbers that the module holds, such as a stride, are written out.

    Raises:
        NotImplementedError: It branches on values, or calls what is not of torch.
    """
    if isinstance(module, InferenceDualNorm):
        return _stripped(dedent(getsource(type(module).forward)))
    code = _follow(path, module).python_code("self")
    outside = sorted(set(code.globals) - _FROM_TORCH)
    if outside:
        raise NotImplementedError(
            f"layer {path!r} ({type(module).__name__}) calls {outside[0]}, which is not a "
            "function of torch: export to onnx or torchscript"
        )
    return _stripped(code.src.strip())


class _ChildTracer(Tracer):
    """Follows the module alone; children are called, tensors are attributes."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Look into no child."""
        return True


def _follow(path: str, module: nn.Module) -> Graph:
    try:
        return _ChildTracer().trace(module)
    except (TraceError, TypeError, IndexError, RuntimeError, NameError) as error:
        reason = str(error).partition(". ")[0]  # torch.fx goes on with advice
        raise NotImplementedError(
            f"layer {path!r} ({type(module).__name__}) cannot be written as source code: "
            "its forward branches on values, sizes or arguments, or loops over a tensor "
            f"({reason}); export to onnx or torchscript"
        ) from error


def _stripped(source: str) -> str:
    """Return the code of a function without what only torch.fx or Python needs."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    lines, values = list[ast.stmt](), dict[str, ast.expr]()
    for line in function.body:
        match line:
            case ast.Assign(value=ast.Constant(None)) | ast.Expr(ast.Constant()):
                pass  # frees memory early; a docstring
            case ast.Assign([ast.Name(name)], (ast.Name() | ast.Attribute()) as value):
                values[name] = value
            case _:
                lines.append(line)
    function.body, function.returns = lines, None
    for argument in function.args.args:
        argument.annotation = None
    return ast.unparse(ast.fix_missing_locations(_Readable(values).visit(function)))


class _Readable(ast.NodeTransformer):
    """Writes ``self.mean`` for its alias, and ``x[:, ::2]`` for tuples of slices."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace an alias."""
        return self.values.get(node.id, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace slices by colons."""
        self.generic_visit(node)
        match node.slice:
            case ast.Tuple(items):
                node.slice = ast.Tuple([_colons(item) for item in items], ast.Load())
            case index:
                node.slice = _colons(index)
        return node


def _colons(index: ast.expr) -> ast.expr:
    match index:
        case ast.Call(ast.Name("slice"), [start, stop, step]):
            return ast.Slice(*map(_bound, (start, stop, step)))
    return index


def _bound(value: ast.expr) -> ast.expr | None:
    none = isinstance(value, ast.Constant) and value.value is None
    return None if none else value
