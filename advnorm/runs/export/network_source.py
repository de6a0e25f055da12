"""A network as source code: one class for each kind of module, and ``Net``."""

from collections import Counter
from keyword import iskeyword
from textwrap import indent

from torch import Tensor, nn

from advnorm.models.checkpointing import Blocks
from advnorm.runs.export.forward_source import forward_source
from advnorm.runs.export.layer_source import is_torch_layer, layer_source

_CHAINS = (nn.Sequential.forward, Blocks.forward)
_WIDTH = 76
"""Calls that are longer have one argument a line."""


def network_source(model: nn.Module) -> str:
    """Return the classes of a model; ``Net()`` has its layers, without their weights."""
    alone = is_torch_layer(model) and not model._modules
    return _NetworkWriter().write(nn.Sequential(model) if alone else model)


class _NetworkWriter:
    """Collects classes while it writes constructor calls."""

    def __init__(self) -> None:
        self.classes: dict[str, str] = {}
        """The name of each class, by its body."""
        self.uses: Counter[str] = Counter({"Net": 1})

    def write(self, model: nn.Module) -> str:
        """Return all classes, ``Net`` last."""
        lines = [_member(name, text) for name, text in self._parts("", model).items()]
        net = f"{_constructor([], lines)}\n\n{forward_source('', model)}"
        classes = [(name, body) for body, name in self.classes.items()]
        return "\n\n\n".join(
            f"class {name}(nn.Module):\n{indent(body, ' ' * 4)}"
            for name, body in [*classes, ("Net", net)]
        )

    def _parts(self, path: str, module: nn.Module) -> dict[str, str]:
        """Return the source of each child and tensor of a module."""
        parts = {
            name: self._call(f"{path}.{name}".removeprefix("."), child)
            for name, child in module.named_children()
        }
        for name, value in (module._parameters | module._buffers).items():
            if isinstance(value, Tensor):
                kind = "parameter" if name in module._parameters else "buffer"
                parts[name] = f"{kind}({', '.join(map(str, value.shape))})"
        return parts

    def _call(self, path: str, module: nn.Module) -> str:
        """Return the call that builds a module."""
        if type(module).forward in _CHAINS:
            return self._sequence(path, module)
        if type(module) in (nn.ModuleList, nn.ModuleDict):
            parts = self._parts(path, module)
            items = [f"[{name!r}, {text}]" for name, text in parts.items()]
            items = list(parts.values()) if isinstance(module, nn.ModuleList) else items
            return _format(f"nn.{type(module).__name__}([", items, "])")
        if is_torch_layer(module):
            return layer_source(path, module)
        parts = self._parts(path, module)
        name = self._class(module, _class_body(path, module, list(parts)))
        arguments = [f"{_argument(part)}={text}" for part, text in parts.items()]
        return _format(f"{name}(", arguments, ")")

    def _sequence(self, path: str, module: nn.Module) -> str:
        parts = self._parts(path, module)
        if list(parts) == [str(number) for number in range(len(parts))]:
            return _format("nn.Sequential(", list(parts.values()), ")")
        items = [f"({name!r}, {text})" for name, text in parts.items()]
        return _format("nn.Sequential(OrderedDict([", items, "]))")

    def _class(self, module: nn.Module, body: str) -> str:
        """Return the name of the class with this body."""
        if body not in self.classes:
            name = type(module).__name__.removeprefix("Inference")
            self.uses[name] += 1
            self.classes[body] = f"{name}{self.uses[name] if self.uses[name] > 1 else ''}"
        return self.classes[body]


def _class_body(path: str, module: nn.Module, parts: list[str]) -> str:
    """Return the constructor, which takes all parts, and ``forward``."""
    arguments = [_argument(name) for name in parts]
    lines = [_member(name, _argument(name)) for name in parts]
    text = f"{_constructor(arguments, lines)}\n\n{forward_source(path, module)}"
    summary = (type(module).__doc__ or "").strip().partition("\n")[0]
    plain = summary.isprintable() and not set(summary) & {"\\", '"', ":"}
    return f'"""{summary}"""\n\n{text}' if summary and plain else text


def _constructor(arguments: list[str], lines: list[str]) -> str:
    head = _format("def __init__(", ["self", *arguments], "):")
    return "\n".join([head, indent("\n".join(["super().__init__()", *lines]), " " * 4)])


def _member(name: str, text: str) -> str:
    """Return the statement that makes a part a member of its module."""
    if _argument(name) == name:
        return f"self.{name} = {text}"
    return f"self.add_module({name!r}, {text})"


def _argument(name: str) -> str:
    """Return the name of the argument for a part; numbers and keywords are none."""
    fits = name.isidentifier() and not iskeyword(name) and name != "self"
    return name if fits else f"layer_{name}"


def _format(start: str, items: list[str], end: str) -> str:
    """Return a call in one line if it is short, else with an item a line."""
    short = f"{start}{', '.join(items)}{end}"
    if len(short) <= _WIDTH and "\n" not in short:
        return short
    lines = "".join(f"{item},\n" for item in items)
    return f"{start}\n{indent(lines, ' ' * 4)}{end}"
