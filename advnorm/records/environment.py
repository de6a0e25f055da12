"""The environment of a run: machine and versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from advnorm.records.base import Record


class Environment(Record):
    """The machine and the versions that a run was made with."""

    advnorm: str
    """The version of advnorm."""
    python: str
    """The version of Python."""
    torch: str
    """The version of torch."""
    platform: str
    """Operating system and architecture."""
    processor: str
    """The name of the processor."""
    cores: int
    """The number of its cores."""
    device: str
    """The device of the tensors, such as ``cpu`` or ``cuda:0``."""
    threads: int
    """Threads of torch."""
    ranks: int = 1
    """Processes that trained together."""
    launch: str = ""
    """Which torchrun started them: its restarts go on with the run."""

    @property
    def machine(self) -> str:
        """Name the machine, and its device where that is not the CPU."""
        device = f"{self.device}, " if self.device not in ("", "cpu") else ""
        return f"{device}{self.cores} cores of {self.processor}, torch {self.torch}"

    @classmethod
    def here(
        cls, *, device: str, threads: int, ranks: int = 1, launch: str = ""
    ) -> "Environment":
        """Describe this machine."""
        return cls(
            advnorm=_version("advnorm"),
            python=platform.python_version(),
            torch=_version("torch"),
            platform=f"{platform.system()} {platform.machine()}",
            processor=_processor(),
            cores=os.cpu_count() or 1,
            device=device,
            threads=threads,
            ranks=ranks,
            launch=launch,
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
