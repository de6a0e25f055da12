"""What a killed process leaves in a run folder, and how it is cleared at the next start."""

import re
from contextlib import suppress
from pathlib import Path

from advnorm.files import clear_leftovers

_WRITTEN = {
    ".": r"recipe\.yaml|(environment|seconds)\.json|(metrics|watch)\.jsonl|report\.html",
    "checkpoints": r"(state|best)-\d+\.(json|safetensors)",
    "examples": r".+\.safetensors",
} | dict.fromkeys(("results", "verdicts", "audits", "diagnoses", "answers"), r".+\.json")
"""The files of a run folder, by the folder that they are in."""
_WEIGHTS = re.compile(r"(state|best)-\d{8,}\.safetensors")


def clear(folder: Path) -> None:
    """Remove temporary files and half-written weights of killed processes.

    Weights are finished by their manifest, and without it nothing reads them. They stay
    where no manifest is left at all: then somebody has taken the manifests away.
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
