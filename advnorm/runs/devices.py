"""Devices by name: published peak speed and memory, and the share that is reached."""

from dataclasses import dataclass

from advnorm.registry import unknown

UTILIZATION = 0.4
"""The share of the peak that estimates assume; docs/how-to/scaling.md tests it."""


@dataclass(frozen=True)
class Device:
    """Peak speed in 10^12 operations a second (dense), memory in 10^9 bytes."""

    single: float
    half: float
    memory: float
    source: str

    def hours(self, flops: float, *, half: bool) -> float:
        """Return the time that operations take at :data:`UTILIZATION`."""
        peak = self.half if half else self.single
        return flops / (peak * 1e12 * UTILIZATION) / 3600


DEVICES: dict[str, Device] = {
    "gtx1080ti": Device(11.3, 11.3, 11, "NVIDIA GTX 1080 Ti: single precision"),
    "rtx2080ti": Device(13.4, 53.8, 11, "NVIDIA Turing white paper"),
    "v100": Device(15.7, 125.0, 16, "NVIDIA V100 SXM2 data sheet"),
    "rtx3090": Device(35.6, 71.0, 24, "NVIDIA Ampere GA102 white paper"),
    "a100": Device(19.5, 312.0, 80, "NVIDIA A100 SXM data sheet, without TF32"),
    "h100": Device(67.0, 989.0, 80, "NVIDIA H100 SXM data sheet, without TF32"),
}


def named_devices(name: str) -> dict[str, Device]:
    """Return the named device, or all of them."""
    if name in ("auto", "all"):
        return DEVICES
    if name not in DEVICES:
        raise unknown("device", name, ["all", *DEVICES])
    return {name: DEVICES[name]}
