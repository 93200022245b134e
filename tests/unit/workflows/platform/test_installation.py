"""What is installed on a cluster: what is shipped is what is built, and a site's values come where they belong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.loading.load import load_cluster
from tests.support.cases.yaml_files import read_all_yaml
from tests.support.generators import installation
from tests.support.generators.installation import scrape_configs, work_pool
from workflows.platform.pod_shapes import NAME

SHIPPED = Path(__file__).parents[4] / "deployments" / "kubernetes"
REWRITE = os.environ.get("PRIMUS_GOLDEN") == "1"
BUILT = {
    "base/server.yaml": installation.prefect_server,
    "base/runner.yaml": installation.runner,
    "base/monitor.yaml": installation.monitor,
    "base/network.yaml": installation.network,
    "components/postgres/postgres.yaml": installation.postgres,
}
Manifest = dict[str, Any]


class Readable(yaml.SafeDumper):
    """Nothing by reference, scripts as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, block)


@pytest.mark.parametrize("name", BUILT)
def test_what_is_shipped_is_what_is_built(name: str) -> None:
    made, file = BUILT[name](), SHIPPED / name
    if REWRITE:
        told = "# Written by `make golden` from tests/support/generators/installation.py.\n"
        file.write_text(told + yaml.dump_all(made, Dumper=Readable, sort_keys=False, width=110))
    assert list(read_all_yaml(file.read_text())) == made, "run: make golden, and look at the difference"


def test_the_work_pool_that_is_shipped_is_what_is_built() -> None:
    file = SHIPPED / "work-pool.json"
    if REWRITE:
        file.write_text(json.dumps(work_pool(), indent=2) + "\n")
    assert json.loads(file.read_text()) == work_pool(), "run: make golden, and look at the difference"


def test_the_scrape_configuration_that_is_shipped_is_what_is_built() -> None:
    file = SHIPPED / "scrape.yaml"
    if REWRITE:
        told = (
            "# Written by `make golden` from tests/support/generators/installation.py: entries for a Prometheus\n"
            "# that reads a file. Its namespace must be `monitoring`, or patch the network policies; it needs the\n"
            "# right to list pods of primus-flows, and the server's password as the file that is named below.\n"
        )
        file.write_text(told + yaml.safe_dump({"scrape_configs": scrape_configs()}, sort_keys=False, width=110))
    assert yaml.safe_load(file.read_text()) == {"scrape_configs": scrape_configs()}, "run: make golden"


def test_every_page_that_is_annotated_is_scraped_and_no_other() -> None:
    said = {
        (labels[NAME], int(notes["prometheus.io/port"]), notes["prometheus.io/path"])
        for pod in pods()
        for labels, notes in [(pod["metadata"]["labels"], pod["metadata"].get("annotations", {}))]
        if notes.get("prometheus.io/scrape") == "true"
    }
    scraped = set[tuple[str, int, str]]()
    for job in scrape_configs():
        name, port = job["relabel_configs"][0]["regex"].split(";")
        scraped.add((name, int(port), job["metrics_path"]))
    assert scraped == said
    ports = {(pod["metadata"]["labels"][NAME], port["containerPort"]) for pod in pods() for port in opened(pod)}
    assert {(name, port) for name, port, _ in scraped} <= ports


def opened(pod: Manifest) -> list[Manifest]:
    return [port for one in pod["spec"]["containers"] for port in one.get("ports", [])]


def test_drivers_of_the_work_pool_reach_server_and_database() -> None:
    theirs = {NAME: "train", "app.kubernetes.io/part-of": "prefect"}  # what a worker writes over ours
    labels = work_pool()["job_configuration"]["job_manifest"]["spec"]["template"]["metadata"]["labels"] | theirs
    admitting = {
        item["metadata"]["name"]
        for item in everything()
        if item["kind"] == "NetworkPolicy"
        for rule in item["spec"].get("ingress", [])
        for source in rule["from"]
        if "podSelector" in source and source["podSelector"]["matchLabels"].items() <= labels.items()
    }
    assert admitting == {"primus-prefect", "primus-postgres"}


def everything() -> list[Manifest]:
    return [item for build in BUILT.values() for item in build()]


def pods() -> list[Manifest]:
    return [item["spec"]["template"] for item in everything() if "template" in item["spec"]]


def containers() -> list[Manifest]:
    return [one for pod in pods() for one in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])]


def test_pods_are_what_the_level_restricted_asks_for() -> None:
    for pod in pods():
        said = pod["spec"]["securityContext"]
        assert said["runAsNonRoot"] is True
        assert said["runAsUser"] > 0
        assert said["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in containers():
        said = one["securityContext"]
        assert said["allowPrivilegeEscalation"] is False
        assert said["readOnlyRootFilesystem"] is True
        assert said["capabilities"] == {"drop": ["ALL"]}
        assert set(one["resources"]["requests"]) == {"cpu", "memory"}
        assert set(one["resources"]["limits"]) == {"memory"}


def test_only_runner_and_monitor_speak_to_the_cluster() -> None:
    tokens = {pod["metadata"]["labels"][NAME]: pod["spec"] for pod in pods()}
    speaking = {name: spec for name, spec in tokens.items() if spec["automountServiceAccountToken"]}
    assert set(speaking) == {"primus-runner", "primus-monitor"}
    assert {spec["serviceAccountName"] for spec in speaking.values()} == {"primus-runner"}


def test_no_password_stands_in_a_manifest() -> None:
    for one in containers():
        for variable in one["env"]:
            if any(word in variable["name"] for word in ("AUTH", "PASSWORD", "LEDGER_URL", "CONNECTION_URL")):
                assert set(variable) == {"name", "valueFrom"}, variable
    assert [item["kind"] for item in everything() if item["kind"] == "Secret"] == []


def test_who_is_selected_is_there() -> None:
    names = {pod["metadata"]["labels"][NAME] for pod in pods()}
    selected = [item["spec"]["selector"] for item in everything() if item["kind"] == "Service"]
    selected += [
        item["spec"]["podSelector"].get("matchLabels") for item in everything() if "podSelector" in item["spec"]
    ]
    assert {found[NAME] for found in selected if found} == names - {"primus-monitor"}, "nobody asks the monitor"


def test_every_mount_has_its_volume() -> None:
    for item in everything():
        if "template" not in item["spec"]:
            continue
        pod = item["spec"]["template"]["spec"]
        there = {volume["name"] for volume in pod["volumes"]}
        there |= {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])}
        used = {m["name"] for c in (*pod.get("initContainers", []), *pod["containers"]) for m in c["volumeMounts"]}
        assert used == there


def test_the_profile_of_the_example_is_one() -> None:
    assert load_cluster(str(SHIPPED / "site" / "cluster.yaml")).context == ""


def kustomized(folder: Path) -> list[Manifest]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on PATH: what kustomize makes of a site was NOT looked at")
    made = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return list(read_all_yaml(made.stdout))


def named(found: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in found if item["kind"] == kind}


def test_a_site_is_complete() -> None:
    made = kustomized(SHIPPED / "site")
    assert set(named(made, "Deployment")) == {"primus-prefect", "primus-runner", "primus-monitor"}
    assert set(named(made, "StatefulSet")) == {"primus-postgres"}
    assert set(named(made, "ServiceAccount")) >= {"primus-runner", "primus-monitor"}
    [(site, values)] = named(made, "ConfigMap").items()
    assert set(values["data"]) == {"cluster.yaml", "prefect-api-url"}
    runner = named(made, "Deployment")["primus-runner"]["spec"]["template"]["spec"]
    assert runner["containers"][0]["image"] == "registry.example.org/primus-flows/control:0.1"
    # The name carries a hash: other values are another pod, and a rollout tells whether they are any good.
    assert [volume["configMap"]["name"] for volume in runner["volumes"] if "configMap" in volume] == [site]
    [asked] = [one["valueFrom"] for one in runner["containers"][0]["env"] if one["name"] == "PREFECT_API_URL"]
    assert asked["configMapKeyRef"]["name"] == site
    claim = named(made, "StatefulSet")["primus-postgres"]["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["storageClassName"] == "fast"


def test_a_site_with_a_prefect_of_its_own(tmp_path: Path) -> None:
    for folder in ("accounts", "base", "components"):
        shutil.copytree(SHIPPED / folder, tmp_path / folder)
    (tmp_path / "mine").mkdir()
    values = {"name": "primus-site", "namespace": "primus-flows", "behavior": "merge"}
    mine = {
        "resources": ["../base"],
        "components": ["../components/existing-prefect"],
        "configMapGenerator": [{**values, "literals": ["prefect-api-url=https://prefect.example.org/api"]}],
    }
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    made = kustomized(tmp_path / "mine")
    assert set(named(made, "Deployment")) == {"primus-runner", "primus-monitor"}
    assert named(made, "Service") == {}
    assert set(named(made, "NetworkPolicy")) == {"primus-closed", "primus-runner"}
    [values] = named(made, "ConfigMap").values()
    assert values["data"]["prefect-api-url"] == "https://prefect.example.org/api"


def test_the_accounts_can_be_had_alone() -> None:
    kinds = {item["kind"] for item in kustomized(SHIPPED)}
    assert kinds == {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
