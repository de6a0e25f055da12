"""Clear what killed processes left in a run folder."""

import re
from contextlib import suppress
from pathlib import Path

from advnorm.files import clear_leftovers

_WRITTEN = {
    ".": r"recipe\.yaml|(environment|seconds)\.json|(metrics|monitor)\.jsonl|report\.html",
    "checkpoints": r"(state|best)-\d+\.(json|safetensors)",
    "examples": r".+\.safetensors",
} | dict.fromkeys(("results", "verdicts", "audits", "diagnoses", "answers"), r".+\.json")
"""The files of a run folder, by the folder that they are in."""
_WEIGHTS = re.compile(r"(state|best)-\d{8,}\.safetensors")


def clear(folder: Path) -> None:
    """Remove temporary files and half-written weights of killed processes.

    Weights are complete once their manifest is written, and nothing reads them without it.
    They are kept if there is no manifest at all: then somebody has removed the manifests.
    """
    for name, files in _WRITTEN.items():
        clear_leftovers(folder / name, files)
    checkpoints = folder / "checkpoints"
    if not any(checkpoints.glob("state-*.json")):
        return
    for path in checkpoints.glob("*.safetensors"):
        if _WEIGHTS.fullmatch(path.name) and not path.with_suffix(".json").exists():
            with suppress(OSError):
                path.unlink()
