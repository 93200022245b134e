"""What is installed on a cluster: its parts fit each other, and a site's values come where they belong."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.loading.load import load_cluster
from tasks import secret_files
from tests.support.cases.yaml_files import read_all_yaml
from workflows.platform.pod_shapes import NAME, NAMESPACE, PART

SHIPPED = Path(__file__).parents[4] / "deployments" / "kubernetes"
FILES = ("base/server.yaml", "base/runner.yaml", "base/monitor.yaml", "base/network.yaml")
DATABASE = "components/postgres/postgres.yaml"
Manifest = dict[str, Any]


def work_pool() -> Manifest:
    return json.loads((SHIPPED / "work-pool.json").read_text())


def job_of_the_pool() -> Manifest:
    return work_pool()["job_configuration"]["job_manifest"]["spec"]


def scrape_configs() -> list[Manifest]:
    return yaml.safe_load((SHIPPED / "scrape.yaml").read_text())["scrape_configs"]


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
    labels = job_of_the_pool()["template"]["metadata"]["labels"] | theirs
    admitting = {
        item["metadata"]["name"]
        for item in everything()
        if item["kind"] == "NetworkPolicy"
        for rule in item["spec"].get("ingress", [])
        for source in rule["from"]
        if "podSelector" in source and source["podSelector"]["matchLabels"].items() <= labels.items()
    }
    assert admitting == {"primus-prefect", "primus-postgres"}


@cache
def everything() -> list[Manifest]:
    return [item for name in (*FILES, DATABASE) for item in read_all_yaml((SHIPPED / name).read_text())]


def pods() -> list[Manifest]:
    return [item["spec"]["template"] for item in everything() if "template" in item["spec"]]


def containers() -> list[Manifest]:
    return [one for pod in pods() for one in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])]


def test_all_parts_are_ours_and_in_our_namespace() -> None:
    for item in everything():
        assert item["metadata"]["namespace"] == NAMESPACE
        assert item["metadata"]["labels"].items() >= PART.items()
    for pod in pods():
        assert pod["metadata"]["labels"].items() >= PART.items()


def test_whoever_drives_runs_is_told_the_same() -> None:
    """Server, ledger and cluster profile: runner, monitor and the Jobs of a work pool."""
    drivers = [pod["spec"] for pod in pods() if pod["spec"].get("serviceAccountName") == "primus-runner"]
    drivers.append(job_of_the_pool()["template"]["spec"])
    assert len(drivers) == 3
    told = [
        {one["name"]: one for one in spec["containers"][0]["env"] if one["name"] != "PRIMUS_RUNNER_PORT"}
        for spec in drivers
    ]
    assert told[0] == told[1] == told[2]
    assert told[0]["PRIMUS_CLUSTER"]["value"] == "/etc/primus/cluster.yaml"
    assert told[0]["PREFECT_API_URL"]["valueFrom"]["configMapKeyRef"] == {
        "name": "primus-site",
        "key": "prefect-api-url",
    }
    [secrets] = [item["projected"] for item in drivers[0]["volumes"] if item["name"] == "secrets"]
    keys = {(one["secret"]["name"], item["key"]) for one in secrets["sources"] for item in one["secret"]["items"]}
    assert keys == {("primus-prefect", "auth-string"), ("primus-database", "ledger-url")}
    for spec in drivers:
        assert spec["volumes"] == drivers[0]["volumes"]
        assert spec["containers"][0]["volumeMounts"] == drivers[0]["containers"][0]["volumeMounts"]


def test_secrets_come_by_files_that_the_program_reads_before_it_imports_anything() -> None:
    specs = [*(pod["spec"] for pod in pods()), job_of_the_pool()["template"]["spec"]]
    containers = [one for spec in specs for one in [*spec["containers"], *spec.get("initContainers", [])]]
    assert "secretKeyRef" not in str(containers), "an environment is printed by everybody who looks into the pod"
    asked = {f"{name}_FILE" for name in secret_files.NAMES}
    reading = [one for one in containers if asked & {item["name"] for item in one.get("env", [])}]
    assert len(reading) == 4
    for one in reading:
        assert one["command"][:3] == ["python3", "-m", secret_files.STARTER]
        assert importlib.util.find_spec(one["command"][3])
        [folder] = [item["mountPath"] for item in one["volumeMounts"] if item["name"] == "secrets"]
        assert all(item["value"].startswith(f"{folder}/") for item in one["env"] if item["name"].endswith("_FILE"))


def test_probes_and_services_ask_ports_that_are_open() -> None:
    for pod in pods():
        for one in pod["spec"]["containers"]:
            names = {port["name"] for port in one.get("ports", [])}
            asked = {
                one[probe]["httpGet"]["port"]
                for probe in ("startupProbe", "readinessProbe", "livenessProbe")
                if "httpGet" in one.get(probe, {})
            }
            assert asked <= names
    opened_by = {
        pod["metadata"]["labels"][NAME]: {(p["name"], p["containerPort"]) for p in opened(pod)} for pod in pods()
    }
    for item in everything():
        if item["kind"] == "Service":
            [port] = item["spec"]["ports"]
            assert (port["targetPort"], port["port"]) in opened_by[item["spec"]["selector"][NAME]]
        if item["kind"] == "NetworkPolicy" and "ingress" in item["spec"]:
            [port] = item["spec"]["ingress"][0]["ports"]
            name = item["spec"]["podSelector"]["matchLabels"][NAME]
            assert port["port"] in {number for _, number in opened_by[name]}


def test_every_deployment_selects_its_own_pods() -> None:
    for item in everything():
        if "template" in item["spec"]:
            chosen = item["spec"]["selector"]["matchLabels"]
            assert chosen == {NAME: item["metadata"]["name"]}
            assert item["spec"]["template"]["metadata"]["labels"].items() >= chosen.items()


def test_a_job_of_the_work_pool_is_what_the_worker_and_we_insist_on() -> None:
    """By prefect-kubernetes 0.8.0."""
    job, pool = job_of_the_pool(), work_pool()
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    assert container["name"] == "prefect-job", "the worker refuses any other name"
    assert (pod["parallelism"], pod["completions"]) == (1, 1), "the worker insists on both, Kubernetes passes over them"
    assert container["args"] == "{{ command }}", "the worker insists on filling it in; the driver does not read it"
    assert container["command"] == ["python3", "-m", "tasks.secret_files", "deployments.processes.flow_run"]
    assert (pod["restartPolicy"], job["backoffLimit"]) == ("Never", 0), "the runner takes over a run that lost its Job"
    assert pool["job_configuration"]["pod_watch_timeout_seconds"] == 300, "the image has half a gigabyte"
    runner = next(pod["spec"] for pod in pods() if pod["metadata"]["labels"][NAME] == "primus-runner")
    assert pod["securityContext"] == runner["securityContext"]
    assert container["securityContext"] == runner["containers"][0]["securityContext"]
    assert pool["variables"]["properties"]["image"]["default"] == runner["containers"][0]["image"]
    # Whatever stands in braces can be set, and nothing else.
    asked = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(pool["job_configuration"])))
    assert asked == set(pool["variables"]["properties"])
    assert pool["variables"]["additionalProperties"] is False


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
                assert variable["name"].endswith("_FILE"), variable
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
