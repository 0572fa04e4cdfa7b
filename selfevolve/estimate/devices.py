"""Accelerators by name: what their makers state for dense bfloat16, float32, memory bandwidth and memory."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from selfevolve.errors import UserError


@dataclass(frozen=True)
class Device:
    """One accelerator; the figures are peaks."""

    title: str
    tflops: float  # 10^12 floating-point operations a second, dense bfloat16
    bandwidth: float  # memory, 10^9 bytes a second
    memory: float  # 10^9 bytes
    float32_tflops: float  # as tflops, in float32 itself: torch leaves TF32 off unless it is told otherwise


# Sources: NVIDIA's data sheets of H200, H100, A100, L40S and the Ada GPU architecture paper (RTX 4090). Figures "with
# sparsity" are halved.
DEVICES = {
    "h200": Device("H200 SXM, 141 GB", 989.0, 4800.0, 141.0, 67.0),
    "h100": Device("H100 SXM, 80 GB", 989.0, 3350.0, 80.0, 67.0),
    "h100-pcie": Device("H100 PCIe, 80 GB", 756.0, 2000.0, 80.0, 51.0),
    "a100-80": Device("A100 SXM, 80 GB", 312.0, 2039.0, 80.0, 19.5),
    "a100-40": Device("A100 SXM, 40 GB", 312.0, 1555.0, 40.0, 19.5),
    "l40s": Device("L40S, 48 GB", 362.0, 864.0, 48.0, 91.6),
    "rtx4090": Device("RTX 4090, 24 GB", 165.2, 1008.0, 24.0, 82.6),
}


def find_device(name: str) -> Device:
    """Return the device of a name, whatever its case.

    Raises:
        UserError: there is none; the message names the nearest.
    """
    key = name.lower().replace(" ", "").replace("_", "-")
    if key in DEVICES:
        return DEVICES[key]
    near = [name for name in DEVICES if name.startswith(key)] or difflib.get_close_matches(
        key, DEVICES, n=1, cutoff=0.3
    )
    raise UserError(
        f"no device {name!r}; known are {', '.join(DEVICES)}",
        f"did you mean {near[0]}?" if near else "choose the one that is nearest to yours",
    )
