"""The probes that open GPUs with a real torch on the processor: what the made-up GPUs stand for is what torch does.

The processor is never taken for a GPU: only these tests ask for it, and every figure names it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases.rows import rows
from workflows.programs.probes import one as probes_one
from workflows.programs.probes.call import Call, execute

pytestmark = pytest.mark.story
ROOT = Path(__file__).parents[3]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="no torch here: torch's own arithmetic, collectives and layouts are NOT tested; install a CPU torch beside",
)
SCRIPT = """
import json, sys
from workflows.programs.probes import gpus
from workflows.programs.probes.gpu import kernels
from workflows.programs.probes.gpu.torch_device import torch_platform
from workflows.programs.probes.call import dump_parsed
kernels.BLOCK_WORDS = 1 << 14
platform = torch_platform("cpu", 2)
platform._torch.set_num_threads(1)
print(dump_parsed(gpus.OF_PLATFORM[sys.argv[1]](json.loads(sys.argv[2]), platform)))
"""


def on_processors(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    """What a probe tells of two processes on this processor."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["primus_probe"]


@needs_torch
@rows("stories/nodes/probe_torch")
def test_torch_on_the_processor_is_sound(name: str, arguments: dict[str, str], told: int) -> None:
    found = on_processors(name, arguments)
    assert found["unknown"] == ""
    assert len(found["readings"]) == told
    bad = [one for one in found["readings"] if one["unit"] == "count" and one["quantity"] != "gpus_bindable"]
    assert [one["value"] for one in bad] == [0.0] * len(bad)
    assert all("processor" in one["line"] for one in found["readings"] if one["quantity"] != "gpus_bindable")


@needs_torch
def test_small_floats_are_right_or_unknown() -> None:
    found = on_processors("gpu-gemm", {"type": "fp8", "size": "64", "seconds": "0"})
    assert found["unknown"] or all(one["value"] == 0.0 for one in found["readings"] if one["unit"] == "count")


@pytest.mark.skipif(
    Path("/proc/driver/nvidia/gpus").exists() or Path("/dev/kfd").exists(), reason="there are GPUs here"
)
@pytest.mark.parametrize("name", probes_one.GPU_PROBES)
def test_without_gpus_or_torch_a_pod_says_what_to_do(name: str) -> None:
    found = execute(Call(0, probe=name), {}, 60.0, {})
    assert found.readings == ()
    assert "this image has no torch" in found.unknown or "sees no GPU: give the pod GPUs" in found.unknown
