"""Checkpoints: written atomically, verified when read, with the previous one as a spare.

A checkpoint is ``<kind>-<step>.safetensors`` and, written after it, ``<kind>-<step>.json``
with its SHA-256 and its size. Facts that are not tensors are in the header of the first, so
that the digest covers them. One without its manifest was never finished and is ignored.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from pydantic_core import from_json
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from advnorm.files import open_regular, read_bytes, write_atomically
from advnorm.records import Record, first_mistake
from advnorm.text import cut

KEEP = 2
_LONGEST_HEADER = 100_000_000


class Checkpoint(NamedTuple):
    """What was saved: tensors by name and facts as plain JSON."""

    path: Path
    digest: str
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class DamagedError(ValueError):
    """A checkpoint whose bytes are not those that were written."""


def save(
    folder: Path, kind: str, step: int, tensors: dict[str, Tensor], facts: dict[str, Any]
) -> Path:
    """Write a checkpoint, then remove all but the newest two of its kind.

    Those of later steps are removed too: training has resumed from before a damaged one.
    """
    path = folder / f"{kind}-{step:08}.safetensors"
    copies = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    content = dump_tensors(copies, metadata={"facts": json.dumps(facts)})
    write_atomically(path, content)
    manifest = {"sha256": sha256(content).hexdigest(), "size": len(content)}
    write_atomically(path.with_suffix(".json"), json.dumps(manifest).encode())
    existing = manifests(folder, kind)
    own = existing.index(path.with_suffix(".json"))
    for old in (*existing[own + 1 :], *existing[: max(0, own + 1 - KEEP)]):
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)
    return path


def load(folder: Path, kind: str, *, warnings: list[str]) -> Checkpoint | None:
    """Read the newest whole checkpoint; each damaged one adds a line to ``warnings``."""
    for manifest in reversed(manifests(folder, kind)):
        try:
            return read(manifest)
        except DamagedError as error:
            warnings.append(f"{error}; the checkpoint before it is used")
    return None


class Manifest(Record):
    """Digest and size of a checkpoint: ``<kind>-<step>.json``."""

    sha256: str
    """Of the bytes of the file."""
    size: int
    """In bytes."""


def read(manifest: Path) -> Checkpoint:
    """Read one checkpoint, and refuse it if it is not what was written."""
    path = manifest.with_suffix(".safetensors")
    try:
        expected = _manifest(manifest)
    except ValidationError as error:
        raise DamagedError(f"{manifest} is damaged ({first_mistake(error)})") from None
    except OSError as error:
        raise DamagedError(f"{manifest} cannot be read ({error.strerror})") from None
    if not path.exists():
        raise DamagedError(f"{path} is missing")
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    if len(content) != expected.size:
        raise DamagedError(f"{path} has {len(content)} bytes instead of {expected.size}")
    if sha256(content).hexdigest() != expected.sha256:
        raise DamagedError(f"{path} does not have the SHA-256 that was written")
    try:
        return Checkpoint(path, expected.sha256, parse_tensors(content), _facts(content))
    except Exception as error:  # a matching digest does not make it a checkpoint
        kind = type(error).__name__
        raise DamagedError(f"{path} is no checkpoint ({kind}: {cut(str(error))})") from None


def _manifest(path: Path) -> Manifest:
    return Manifest.model_validate_json(read_bytes(path, Manifest.LIMIT))


def _facts(content: bytes) -> dict[str, Any]:
    """Read the header: eight bytes of length, then JSON, which holds the facts as JSON."""
    length = int.from_bytes(content[:8], "little")
    header = from_json(content[8 : 8 + length])
    return dict(from_json(header["__metadata__"]["facts"]))


def facts_of(manifest: Path) -> dict[str, Any] | None:
    """Return a checkpoint's facts without its tensors; ``None`` if they are damaged."""
    try:
        with open_regular(manifest.with_suffix(".safetensors")) as file:
            start = file.read(8)
            length = min(int.from_bytes(start, "little"), _LONGEST_HEADER)
            return _facts(start + file.read(length))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def name_of(checkpoint: Path, digest: str) -> str:
    """Name weights: which checkpoint, and its digest."""
    return f"{checkpoint.stem} sha256:{digest}"


def kind_of(weights: str) -> str:
    """Return the kind of checkpoint that holds the best or the last weights."""
    if weights not in ("best", "last"):
        raise ValueError(f"weights is 'best' or 'last', not {weights!r}")
    return "best" if weights == "best" else "state"


def newest(folder: Path, weights: str) -> str:
    """Name the newest best or last weights by their manifest; nothing without one."""
    try:
        manifest = manifests(folder, kind_of(weights))[-1]
        return name_of(manifest, _manifest(manifest).sha256)
    except (IndexError, OSError, ValidationError):
        return ""


def manifests(folder: Path, kind: str) -> list[Path]:
    """Return the manifests of a kind, oldest first."""
    return sorted(folder.glob(f"{kind}-*.json"))
