"""The gang as a Kubeflow TrainJob, as it is printed, trains on real pods to its end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.bed import samples, trainer
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.layout import ROOT
from tests.bed.up import Bed
from workflows import labels

SPACE = "training"
STEPS = 40


def printed(bed: Bed, home: Path) -> list[Manifest]:
    """What `primus render train demo --as trainjob` prints for the bed."""
    words = ["render", "train", "demo", "--as", "trainjob", "--cluster", "bed", "--set", f"steps={STEPS}"]
    environment = {
        "KUBECONFIG": str(bed.folder.account("runner")),
        "PRIMUS_HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "deployments.cli.main", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def test_the_printed_trainjob_trains_to_the_end(bed: Bed) -> None:
    home = bed.folder.root / "shared" / "trainjob"
    home.mkdir(parents=True, exist_ok=True)
    runtime, job = made = printed(bed, home)
    name = job["metadata"]["name"]
    token = {"name": f"{name}-token", "namespace": SPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": token, "stringData": {"token": "t" * 32}}
    assert [one["kind"] for one in made] == ["TrainingRuntime", "TrainJob"]
    (home / "shared" / "runs").mkdir(parents=True, exist_ok=True)
    with trainer.standing(bed):
        try:
            for one in (secret, runtime, job):
                bed.api.ensure(one)
            until(f"{name} complete", lambda: "Complete" in samples.conditions(bed.find(job)), 150, 0.5)
            gang = samples.pods(bed, SPACE, f"{labels.RUN}={job['metadata']['labels'][labels.RUN]}")
            ranks = [pod for pod in gang if pod["metadata"]["labels"][labels.ROLE] == "trainer"]
            assert [pod["status"]["phase"] for pod in ranks] == ["Succeeded", "Succeeded"]
            assert len({pod["spec"]["nodeName"] for pod in ranks}) == 2
            said = [samples.log(bed, SPACE, pod["metadata"]["name"]) for pod in ranks]
            assert any(f"final step {STEPS} |" in text for text in said), said[0][-2000:]
        finally:
            for one in (job, runtime, secret):
                bed.api.delete(one)
            until("the gang gone", lambda: bed.find(samples.jobset_named(name, SPACE)) is None, samples.LIMIT_S, 0.3)
            shutil.rmtree(home, ignore_errors=True)
