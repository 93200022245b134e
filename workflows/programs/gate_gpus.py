"""How many GPUs this node shows: device files of the driver, and the vendor's own tool where the image has it.

Where both answer, the smaller number counts: a device file may outlive the GPU behind it.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, cast

VENDORS = ("amd", "nvidia")
FAKE_VARIABLE = "PRIMUS_FAKE_GPUS"


@dataclass(frozen=True)
class GpuCount:
    """What was counted."""

    gpus: int
    evidence: str
    """Every source with its number."""


def count(
    vendor: str, fake: bool, environment: Mapping[str, str], timeout_seconds: float, root: str = "/"
) -> Optional[GpuCount]:
    """GPUs of this node; None where fake ones are asked for and the environment names no number.

    Args:
        vendor: `amd`, `nvidia`, or empty for whichever is there.
        fake: believe `PRIMUS_FAKE_GPUS`.
        environment: environment variables.
        timeout_seconds: longest time of a vendor's tool.
        root: where `dev` and `sys` lie.
    """
    if fake:
        text = environment.get(FAKE_VARIABLE, "")
        return GpuCount(int(text), f"{FAKE_VARIABLE}={text}") if text.isdigit() else None
    counts = [_of_vendor(name, timeout_seconds, root) for name in ([vendor] if vendor else VENDORS)]
    return GpuCount(max(one.gpus for one in counts), "; ".join(one.evidence for one in counts))


def _of_vendor(vendor: str, timeout_seconds: float, root: str) -> GpuCount:
    devices = DEVICES[vendor](root)
    sources: List[Tuple[str, Optional[int]]] = [("device files", devices)]
    for argv, read in TOOLS[vendor]:
        if shutil.which(argv[0]) is not None:
            sources.append((" ".join(argv), _ask(argv, read, timeout_seconds)))
            break
    # A tool that is there and does not answer sees no GPU.
    numbers = [0 if number is None else number for _, number in sources]
    said = "; ".join(f"{name}: {'no answer' if number is None else number}" for name, number in sources)
    return GpuCount(min(numbers), f"{vendor}: {said}")


def _ask(argv: Tuple[str, ...], read: Callable[[str], Optional[int]], timeout_seconds: float) -> Optional[int]:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return read(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else None


def nvidia_devices(root: str) -> int:
    """`/dev/nvidia<n>`: one a GPU."""
    return sum(
        1 for path in glob.glob(os.path.join(root, "dev/nvidia[0-9]*")) if path.rpartition("nvidia")[2].isdigit()
    )


def amd_devices(root: str) -> int:
    """Nodes of the compute driver's topology that have SIMD units (the others are CPUs)."""
    found = 0
    for path in glob.glob(os.path.join(root, "sys/class/kfd/kfd/topology/nodes/*/properties")):
        with open(path, encoding="ascii", errors="replace") as file:
            match = re.search(r"^simd_count (\d+)$", file.read(), re.MULTILINE)
        found += match is not None and int(match.group(1)) > 0
    return found


def read_nvidia_smi(text: str) -> Optional[int]:
    """`nvidia-smi -L`: one line `GPU <n>: …` each."""
    return len(re.findall(r"^GPU \d+: ", text, re.MULTILINE))


def read_amd_smi(text: str) -> Optional[int]:
    """`amd-smi list --json`: a list with one object a GPU (newer versions: under `gpu_data`)."""
    data = _json(text)
    if isinstance(data, dict):
        data = cast("Dict[str, Any]", data).get("gpu_data")
    return len(cast("List[Any]", data)) if isinstance(data, list) else None


def read_rocm_smi(text: str) -> Optional[int]:
    """`rocm-smi --showid --json`: an object with one key `card<n>` a GPU."""
    data = _json(text)
    if not isinstance(data, dict):
        return None
    return sum(1 for key in cast("Dict[str, Any]", data) if re.match(r"^card\d+$", key))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


DEVICES: Mapping[str, Callable[[str], int]] = {"nvidia": nvidia_devices, "amd": amd_devices}
TOOLS: Mapping[str, Tuple[Tuple[Tuple[str, ...], Callable[[str], Optional[int]]], ...]] = {
    "nvidia": ((("nvidia-smi", "-L"), read_nvidia_smi),),
    "amd": (
        (("amd-smi", "list", "--json"), read_amd_smi),
        (("rocm-smi", "--showid", "--json"), read_rocm_smi),
    ),
}
"""The vendor's tools, best first; the first one that is installed is asked."""
