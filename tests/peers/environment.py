"""The peers' own environment, build/peers/venv: made once, from whatever index pip is set up for.

Nothing of it touches the environment of the product, which works without torch.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PLACE = ROOT / "build" / "peers"
TORCH_DEPENDENCIES = (
    "filelock", "typing-extensions>=4.10", "sympy>=1.13.3", "networkx>=2.5.1", "jinja2", "fsspec>=0.8.5", "numpy",
)  # fmt: skip
CUDA_LIBRARIES = (
    "nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90", "nvidia-cufft-cu12==11.3.3.83",
    "nvidia-curand-cu12==10.3.9.90", "nvidia-cusparse-cu12==12.5.8.93", "nvidia-cusparselt-cu12==0.7.1",
    "nvidia-cufile-cu12==1.13.1.3", "nvidia-nvjitlink-cu12==12.8.93", "nvidia-nvshmem-cu12==3.3.20",
    "nvidia-cublas-cu12==12.8.4.1", "nvidia-nccl-cu12==2.27.5", "nvidia-cudnn-cu12==9.10.2.21",
)  # fmt: skip
"""What torch's build for x86_64 is linked against: without them it cannot be imported, even on a machine without a GPU.
Triton and the libraries that torch opens only when they are used (solvers, the compiler, markers) stay away."""


@dataclass(frozen=True)
class Package:
    """Something of the peers, installed by itself so that one that cannot be had does not keep the others away."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    """Arguments of `pip install`, one call after the other."""
    imports: str
    """A module that can be imported where it works."""


_WITHOUT_MORE = "--no-deps"
_TORCH = (
    ((_WITHOUT_MORE, "torch==2.9.0"), TORCH_DEPENDENCIES, (_WITHOUT_MORE, *CUDA_LIBRARIES))
    if platform.machine() == "x86_64"
    else (("torch==2.9.0", "numpy"),)
)
TORCH = Package("torch 2.9.0", _TORCH, "torch")
PACKAGES = (
    TORCH,
    Package(
        "nvidia-resiliency-ext 0.4.1",
        (
            (_WITHOUT_MORE, "nvidia-resiliency-ext==0.4.1"),
            ("defusedxml", "nvidia-ml-py>=12.570.86", "packaging", "psutil>=6", "pynvml>=12", "pyyaml"),
        ),
        "nvidia_resiliency_ext.inprocess",
    ),
    Package("dlrover 0.6.1", (("dlrover[k8s]==0.6.1",),), "dlrover.trainer.torch.elastic_run"),
    Package(
        "torchft-nightly 2026.10.26",
        (
            (_WITHOUT_MORE, "torchft-nightly==2026.10.26"),
            ("opentelemetry-exporter-otlp-proto-http>=1.39", "opentelemetry-sdk>=1.39"),
        ),
        "torchft",
    ),
)


@dataclass(frozen=True)
class Installed:
    """What there is to measure with."""

    bin: Path
    missing: dict[str, str]
    """What could not be installed or imported, by the package's name, and why."""

    @property
    def python(self) -> Path:
        """The interpreter of all scripts."""
        return self.bin / "python"


def prepared(place: Path = PLACE, packages: tuple[Package, ...] = PACKAGES) -> Installed:
    """The environment, made where it is missing or made from something else."""
    stamp = place / "installed.json"
    wanted = hashlib.sha256(repr((packages, sys.version_info[:2])).encode()).hexdigest()
    known: dict[str, Any] = json.loads(stamp.read_text()) if stamp.exists() else {}
    there = Installed(place / "venv" / "bin", dict(known.get("missing", {})))
    if known.get("wanted") == wanted and not there.missing:
        return there
    print(f"setting up {place} (6 GB on x86_64; once, some minutes)", file=sys.stderr, flush=True)
    place.mkdir(parents=True, exist_ok=True)
    if not there.python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    missing = {package.name: why for package in packages if (why := _install(there, package))}
    stamp.write_text(json.dumps({"wanted": wanted, "missing": missing}))
    return Installed(there.bin, missing)


def _install(there: Installed, package: Package) -> str:
    """Why it cannot be used; "" where it can."""
    for words in package.steps:
        argv = [str(there.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return last_line(done.stderr) or f"pip ended with {done.returncode}"
    argv = [str(there.python), "-W", "ignore", "-c", f"import {package.imports}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else last_line(done.stderr) or f"its import ended with {done.returncode}"


def last_line(text: str) -> str:
    """The last line that says something, cut."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return said[-1][:200] if said else ""
