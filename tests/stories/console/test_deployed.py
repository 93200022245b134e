"""The deployments as `prefect deploy` makes them of the shipped file, started by a worker of a process pool."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from deployments.processes.offers import LISTED, offers_of
from profiles.loading.load import load_cluster
from tests.support.harness.runners import LIMIT_S, Asking
from tests.support.harness.stages import PROFILE, Stage, succeeded

pytestmark = pytest.mark.story
ROOT = Path(__file__).parents[3]


def prefect(scene: Stage, *words: str, **environment: str) -> str:
    """Prefect's own command line, as people use it; what it printed."""
    # As in an activated environment: a worker starts `python` by its PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "PRIMUS_HOME": str(scene.home), "PREFECT_API_URL": scene.api_url}
    shared = {**os.environ, **given, **environment}
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *words],
        env=shared,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_what_prefect_deploys_is_what_the_runner_serves_and_a_worker_starts_it(scene: Stage) -> None:
    pool, name = f"laptop-{uuid4().hex[:8]}", f"deployed-{uuid4().hex[:8]}"
    prefect(scene, "work-pool", "create", "--type", "process", pool)
    named = {"PRIMUS_DEPLOYMENT": name, "PRIMUS_WORK_POOL": pool}
    prefect(scene, "deploy", "--all", "--prefect-file", str(LISTED.relative_to(ROOT)), **named)
    with httpx.Client(base_url=scene.api_url, timeout=LIMIT_S) as client:
        for offer in offers_of(load_cluster("local").model_copy(update={"name": name})):
            if offer.trains and offer.parameters:
                continue  # presets are the runner's
            made = client.get(f"/deployments/name/{offer.flow}/{offer.name}").raise_for_status().json()
            assert (made["entrypoint"], made["work_pool_name"]) == (offer.entrypoint, pool)
            assert set(made["tags"]) == set(offer.tags)
            assert made["parameters"] == offer.parameters
            assert made["description"]
            assert set(made["parameter_openapi_schema"]["properties"]) == set(offer.schema["properties"])
            assert {item["slug"]: item["schedule"]["cron"] for item in made["schedules"]} == {
                item.slug: item.cron for item in offer.timetables
            }
            if offer.timetables:
                client.post(f"/deployments/{made['id']}/pause_deployment").raise_for_status()
    with closing(Asking(scene.api_url, f"train/{name}")) as asking:
        flow_run = asking.asked(profile=str(PROFILE), name="deployed", overrides=["steps=5"])
        prefect(scene, "worker", "start", "--pool", pool, "--type", "process", "--run-once")
        assert asking.ended(flow_run)["type"] == "COMPLETED"
    scene.run = "deployed"
    assert succeeded(scene.story), scene.tell()
