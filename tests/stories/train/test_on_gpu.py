"""The unchanged script on a GPU: a fork shares nothing wrongly, and what a killed rank held is free again.

Needs a Python whose torch sees a GPU (as tests/stories/train/test_unchanged_script.py finds one); both ranks share it.
"""

from __future__ import annotations

import csv
import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from profiles.vocabulary import FaultClass
from tests.stories.train.test_unchanged_script import (
    LIMITS,
    begun_again,
    profile,
    python_with_torch,
    stuck_once,
    weights,
    weights_of_a_calm_run,
)
from tests.support.harness.stages import Stage
from workflows.programs.launcher import usage

pytestmark = pytest.mark.story
ON_GPU = ("--device", "cuda")
AMD_DEVICE = "kfd"
"""Who has a context on a GPU of AMD has it open. NVIDIA's are open in whoever reads sensors too: the driver tells."""
SEES_A_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"


@pytest.fixture(scope="module")
def gpu() -> None:
    """Not asked before a test wants to know: torch takes seconds to come up."""
    python = python_with_torch()
    if not python or subprocess.run([python, "-c", SEES_A_GPU], check=False, capture_output=True).returncode:
        pytest.skip("NO GPU HERE: ranks that begin again on one are not tried")


def holders() -> set[int]:
    """Processes that have a context on a GPU."""
    if usage.open_library() is not None:
        asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        return {int(pid) for pid in subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()}
    found = set[int]()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # it ended meanwhile
            if any(path.readlink().name == AMD_DEVICE for path in folder.iterdir()):
                found.add(int(folder.parent.name))
    return found


@pytest.fixture(scope="module")
def unfailed(gpu: None, prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return weights_of_a_calm_run(prefect_server, tmp_path_factory.mktemp("profile"), *ON_GPU)


@pytest.mark.parametrize(
    ("fault", "fault_class"),
    [("kill-rank:1,step=28", FaultClass.PROCESS_KILLED), ("hang-rank:1,step=33", FaultClass.HANG)],
)
def test_ranks_on_a_gpu_begin_again_in_place(
    scene: Stage, tmp_path: Path, unfailed: set[str], fault: str, fault_class: FaultClass
) -> None:
    before = holders()
    scene.start(profile=str(profile(tmp_path, *ON_GPU)), in_place=True, overrides=LIMITS).fault(fault)
    scene.until(lambda story: any(trouble.resumed_at for trouble in story.troubles), "training again")
    ranks = holders() - before
    assert len(ranks) == 2, f"two ranks have a context, and nobody who is parked: {ranks}"
    seen = begun_again(scene, 1)
    assert seen.fault_class == fault_class, scene.tell()
    assert weights(scene) == unfailed
    assert holders() == before, "nothing is left on the GPU"
    told = "".join(path.read_text(errors="replace") for path in scene.folder.rglob("launcher.log"))
    assert "ranks that begin again are forked from process" in told, "not started plainly"
    print(json.dumps({"fault": fault, "again_seconds": round((seen.resumed_at or 0.0) - seen.at, 3)}))


@pytest.mark.parametrize("forked", [True, False], ids=["forked", "started-plainly"])
def test_a_rank_whose_kernel_does_not_end_is_found_and_begins_again(
    scene: Stage, tmp_path: Path, unfailed: set[str], forked: bool
) -> None:
    before = holders()
    hung = stuck_once(scene, tmp_path, *ON_GPU, forked=forked)
    assert weights(scene) == unfailed
    assert holders() == before, "nothing is left on the GPU"
    print(json.dumps({"hung": hung.evidence, "again_seconds": round((hung.resumed_at or 0.0) - hung.at, 3)}))


def test_the_library_says_what_the_tool_says() -> None:
    library = usage.open_library()
    if library is None:
        pytest.skip("NO NVIDIA DRIVER HERE: its library is not asked")
    fields = "memory.total,memory.used,temperature.gpu,power.draw,ecc.errors.uncorrected.aggregate.total"
    asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    rows = list(csv.reader(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()))
    told = library.gpus()
    assert len(told) == len(rows)
    for index, row in enumerate(rows):
        total, used, heat, power, errors = (value.strip() for value in row)
        gpu = told[str(index)]
        assert gpu["memory_limit_bytes"] >> 20 == pytest.approx(float(total), abs=1)
        assert gpu["memory_bytes"] >> 20 == pytest.approx(float(used), rel=0.05, abs=1024)
        assert gpu["temperature_celsius"] == pytest.approx(float(heat), abs=5)
        assert gpu["power_watts"] == pytest.approx(float(power), rel=0.5)
        assert gpu.get("uncorrected_errors", 0) == (int(errors) if errors.isdigit() else 0)
    print(json.dumps(told))
