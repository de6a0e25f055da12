"""Export a model: choose the format, check the files, and write them."""

from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from torch import Tensor, nn

from advnorm.files import write_alone
from advnorm.norms import Domain
from advnorm.records import Run
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.source import ExportRequest

FormatName = Literal["torch", "onnx", "torchscript", "robustbench", "card"]


class ExportedFiles(NamedTuple):
    """The files that were written, with their SHA-256, and what was checked."""

    digests: dict[Path, str]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        files = [f"{path}  sha256:{digest}" for path, digest in self.digests.items()]
        return "\n".join([*files, *self.notes])


def export_model(
    run_or_model: Run | Path | str | nn.Module,
    *,
    to: FormatName,
    out: Path | str,
    branch: Domain | None = None,
    weights: str = "best",
    images: Tensor | None = None,
    root: Path | None = None,
) -> ExportedFiles:
    """Write a model, or what was measured of it, for use without advnorm.

    A network is loaded again and compared before it is written: its logits on test images
    in batches of 1, 7 and more, and the stored predictions of the run. Standardization is
    part of it, and so is the gate of a dual norm.

    Args:
        run_or_model: A run folder; or a model in evaluation mode, with ``images``.
        to: ``torch`` (a Python file and safetensors), ``onnx``, ``torchscript``; or of a
            run ``robustbench`` (the JSON of its model zoo) or ``card`` (a model card).
        out: The file to write; ``NAME.py`` for ``torch``. An existing one is refused.
        branch: The branch of a norm that has two: ``adversarial`` or ``clean``. By
            default that of the run's ``evaluation.branch``.
        weights: Of a run: ``best`` or ``last``.
        images: Of a model: a batch as it takes it.
        root: Of a run: the folder of data sets.

    Raises:
        NotImplementedError: A layer cannot be exported; the message names it.
        ExportCheckError: The exported network computes something else; nothing is written.

    >>> import tempfile, torch, advnorm
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = advnorm.export(
    ...         model, to="torch", out=f"{folder}/net.py", images=torch.rand(5, 1, 2, 2)
    ...     )
    >>> sorted(path.name for path in files.digests)
    ['net.py', 'net.safetensors']
    """
    FORMATS[to]  # an unknown name is refused before a run is opened
    subject = run_or_model
    if not isinstance(subject, Run | nn.Module):
        subject = Run.open(Path(subject))
    request = ExportRequest(subject, branch, weights, images, root)
    return export_request(request, to=to, out=Path(out))


def export_request(request: ExportRequest, *, to: str, out: Path) -> ExportedFiles:
    """Write what was asked for; see :func:`export_model`."""
    render = FORMATS[to]
    _refuse_existing(out)
    return _write(render(request, out))


def _write(rendered: RenderedExport) -> ExportedFiles:
    """Write all files or none."""
    for path in rendered.files:
        _refuse_existing(path)
    written: list[Path] = []
    try:
        for path, content in rendered.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_alone(path, content)
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    digests = {path: sha256(data).hexdigest() for path, data in rendered.files.items()}
    return ExportedFiles(digests, rendered.notes)


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists: remove it, or choose another --out")
