"""Name the layer in which an exporter fails."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import nn

from advnorm.text import cut


@contextmanager
def named_failure(model: nn.Module, to: str) -> Iterator[None]:
    """Turn an exporter's error into one sentence with the layer that it stopped at."""
    running: list[str] = []

    def enter(name: str, *_: object) -> None:
        if not name:  # an exporter begins anew
            running.clear()
        running.append(name)

    def leave(*_: object) -> None:
        with suppress(IndexError):
            running.pop()

    handles = []
    for name, layer in model.named_modules():
        handles.append(layer.register_forward_pre_hook(partial(enter, name)))
        handles.append(layer.register_forward_hook(leave))
    try:
        yield
    except Exception as error:
        name = running[-1] if running else ""
        kind = type(model.get_submodule(name)).__name__
        where = f"layer {name!r} ({kind})" if name else f"the model ({kind})"
        if type(cause_of(error)).__name__ == "GuardOnDataDependentSymNode":
            raise NotImplementedError(
                f"{where} cannot be exported to {to}: its forward depends on values of "
                "tensors, in a branch or a shape; export to torchscript, whose file keeps "
                "the branches that the test images take"
            ) from error
        raise NotImplementedError(
            f"{where} cannot be exported to {to} with a batch of any size "
            f"({first_line(error)}): change its forward, or choose another format"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def cause_of(error: BaseException) -> BaseException:
    """Return the cause of an error of the ONNX exporter, whose own text is long advice."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__:
        error = error.__cause__
    return error


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its text."""
    error = cause_of(error)
    text = next(filter(None, map(str.strip, str(error).splitlines())), "")
    return f"{type(error).__name__}: {cut(text)}"
