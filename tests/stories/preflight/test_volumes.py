"""Stories of the check of volumes on the embedded cluster: claimed, bound, mounted, written, read back, and gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.loading.load import load_suite
from tasks.clusters import embedded_cluster
from tasks.settings import localised
from tests.support.faults.node_faults import local

pytestmark = pytest.mark.story
VOLUME_CHECKS = ("volume-lifecycle", "volume-claim", "volume-time")


@dataclass(frozen=True)
class Scene:
    """A home, its cluster with that storage class, and what was left of pods before."""

    home: Path
    cluster: Any

    def tested(self, storage_class: str, seconds: float) -> tuple[int, dict[str, Any]]:
        """The shipped checks of volumes on two nodes; the exit code and the only test."""
        profile = self.home / "cluster.yaml"
        wanted = {"extends": "local", "name": "local", "admission": {"storage_class": storage_class}}
        profile.write_text(yaml.safe_dump(wanted))
        shipped = {check.name: check for check in load_suite("storage").checks}
        checks = [shipped[name].model_copy(update={"deadline_seconds": seconds}) for name in VOLUME_CHECKS]
        also = shipped["storage-space"].model_copy(update={"limits": shipped["storage-inodes"].limits})
        suite = self.home / "suite.yaml"
        dumped = [json.loads(check.model_dump_json(exclude_defaults=True)) for check in (*checks, also)]
        suite.write_text(yaml.safe_dump({"name": "volumes", "checks": dumped}))
        words = ["preflight", "--cluster", str(profile), "--suite", str(suite), "--nodes", "node-0,node-1", "--json"]
        command = [sys.executable, "-c", "from deployments.cli.main import main; main()", *words]
        environment = {**os.environ, "PRIMUS_HOME": str(self.home)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.stdout, done.stderr
        [test] = json.loads(done.stdout)
        return done.returncode, test

    def left(self) -> list[Path]:
        """Folders of volumes that were claimed and are still there."""
        return sorted(self.home.rglob("claimed"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made: Any = embedded_cluster(localised(local(), tmp_path), tmp_path)
    yield Scene(tmp_path, made)
    made.stop()


def said(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {reason["check"]: reason for reason in node["reasons"]}


def test_a_volume_lives_on_each_node_and_leaves_nothing(scene: Scene) -> None:
    code, test = scene.tested("folders", 60)
    assert (code, test["left_out"]) == (0, [])
    for node in test["nodes"]:
        reasons = said(node)
        assert [reasons[name]["verdict"] for name in VOLUME_CHECKS] == ["pass"] * 3, reasons
        assert "64 MiB written at" in reasons["volume-lifecycle"]["evidence"]
        assert "bound and mounted after" in reasons["volume-time"]["evidence"]
        assert 0 < reasons["volume-time"]["measured"] < 60
    assert scene.left() == []
    assert scene.cluster.list("Pod") == scene.cluster.list("Workflow") == []


def test_a_claim_that_nobody_binds_is_the_storages_failure_and_no_nodes(scene: Scene) -> None:
    code, test = scene.tested("gold", 3)
    assert code == 3
    for node in test["nodes"]:
        reasons = said(node)
        assert node["verdict"] == "unknown", "and not bad"
        assert reasons["storage-space"]["verdict"] == "pass", "what needs no volume is known all the same"
        assert reasons["volume-claim"]["verdict"] == "fail"
        assert reasons["volume-claim"]["severity"] == "warning"
        assert reasons["volume-lifecycle"]["verdict"] == "unknown"
        assert 'storageclass "gold" not found' in reasons["volume-lifecycle"]["evidence"]
        assert "the storage's failure, not the node's" in reasons["volume-lifecycle"]["evidence"]
    assert scene.cluster.list("Pod") == []


def test_without_a_storage_class_the_check_is_left_out_and_says_so(scene: Scene) -> None:
    code, test = scene.tested("", 60)
    assert code == 0
    assert {one["check"] for one in test["left_out"]} == set(VOLUME_CHECKS)
    assert {one["why"] for one in test["left_out"]} == {
        "The cluster profile names no storage class (admission.storage_class)."
    }
    assert {reason["check"] for node in test["nodes"] for reason in node["reasons"]} == {"storage-space"}
