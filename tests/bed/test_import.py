"""The bed as a living cluster that has no profile: its import is one, and a run is accepted by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.clusters import ImportOptions, import_cluster
from deployments.cli.profiles import render_resolved
from deployments.exit_codes import GOOD
from profiles.loading.load import load_cluster
from profiles.request import TrainRequest
from tasks.runs.open import resolve_request
from tasks.settings import Settings
from tests.bed import kwok
from tests.bed.options import REAL_LABEL
from tests.bed.up import Bed

SHARED = "{home}/shared"


def test_the_import_of_the_bed_is_a_profile_that_the_bed_accepts(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(bed.folder.kubeconfig))
    path = tmp_path / "imported.yaml"
    asked = ImportOptions("bed", load_cluster("bed").namespace, "", (SHARED,), str(path))
    assert import_cluster(asked, as_json=False) == GOOD
    profile = load_cluster(str(path))
    real, played = sorted(profile.pools, key=lambda pool: pool.labels[REAL_LABEL], reverse=True)
    assert (real.nodes, real.labels, real.taints) == (len(list(bed.options.real_nodes())), {REAL_LABEL: "real"}, ())
    taint = f"{kwok.ANNOTATION}=fake:NoSchedule"
    assert (played.nodes, played.labels, played.taints) == (bed.options.kwok, {REAL_LABEL: "kwok"}, (taint,))
    assert (real.cpus_per_node, played.memory_per_node) == (2, "512Gi")
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    request = TrainRequest(profile="demo", cluster=str(path), overrides=(f"hardware=[{real.hardware}]",))
    assert render_resolved(resolve_request(request, settings), "dry-run", as_json=True) == GOOD
    capsys.readouterr()
