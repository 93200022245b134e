"""The objects of the health service: no right is wider than it must be, nothing secret is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.loading.load import dump, load_text
from workflows.lint.pods import SECRET_NAME, SECRET_VALUE
from workflows.platform.health import ALIAS, MARKS, READS, SERVICE, check_pod, daemon_set, health, options
from workflows.platform.health_alerts import rules
from workflows.platform.pod_shapes import NAME
from workflows.programs.health.options import parse
from workflows.programs.main import PROGRAMS

Manifest = dict[str, Any]
USUAL = HealthValues()
FULL = HealthValues(
    namespace="gpus",
    image="registry.example.org/rocm:7",
    image_pull_secrets=("pull",),
    node_selector={"amd.com/gpu.present": "true"},
    tolerations=("amd.com/gpu=present:NoSchedule", "x:NoExecute"),
    interval_seconds=600,
    deep_interval_seconds=0,
    checks=("ping", "pvc"),
    pcie_gbs=20,
    port=4444,
    compatible=True,
    write_labels=True,
    storage_class="fast",
    run_as_user=None,
    privileged=True,
    runtime_class="nvidia",
    host_network=True,
    annotations={"k8s.v1.cni.cncf.io/networks": "net1"},
    environment={"NVIDIA_VISIBLE_DEVICES": "all"},
    service_monitor=True,
    monitoring_labels={"release": "prometheus"},
)
BOTH = pytest.mark.parametrize("values", [USUAL, FULL], ids=["usual", "full"])


def of(values: HealthValues, kind: str) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in health(values) if item["kind"] == kind}


def pod(values: HealthValues) -> Manifest:
    return daemon_set(values)["spec"]["template"]["spec"]


def daemon(values: HealthValues) -> Manifest:
    return pod(values)["containers"][0]


def rights(values: HealthValues, kind: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for role in of(values, kind).values()
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@BOTH
def test_everything_is_found_by_one_label_and_stands_in_one_namespace(values: HealthValues) -> None:
    for item in health(values):
        assert item["metadata"]["labels"].items() >= MARKS.items(), item["kind"]
        if item["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            assert item["metadata"]["namespace"] == values.namespace
    assert health(values) == health(values)


@BOTH
def test_what_is_used_comes_after_what_it_uses(values: HealthValues) -> None:
    kinds = [item["kind"] for item in health(values)]
    assert kinds.index("Namespace") == 0
    assert kinds.index("ServiceAccount") < kinds.index("ClusterRoleBinding") < kinds.index("DaemonSet")


@BOTH
def test_no_secret_stands_in_any_object(values: HealthValues) -> None:
    assert [item for item in health(values) if item["kind"] == "Secret"] == []
    for one in [*pod(values)["containers"], *pod(values)["initContainers"], *check_pod(values)["spec"]["containers"]]:
        for variable in one.get("env", []):
            assert "value" not in variable or not SECRET_NAME.search(variable["name"]), variable
    assert not SECRET_VALUE.search(json.dumps(health(values)))


@pytest.mark.parametrize("environment", [{"HF_TOKEN": "x"}, {"password": "x"}, {"URL": "https://me:secret@host/"}])
def test_what_looks_like_a_secret_is_refused_by_its_name(environment: dict[str, str]) -> None:
    [name] = environment
    with pytest.raises(ProfileError, match=f"^environment.{name}: looks like a secret"):
        health(HealthValues(environment=environment))


def test_the_token_comes_from_the_sites_own_secret() -> None:
    values = HealthValues(token_secret="mine")
    assert {"name": "PRIMUS_TOKEN_FILE", "value": "/primus/token/token"} in daemon(values)["env"]
    assert {"name": "token", "mountPath": "/primus/token"} in daemon(values)["volumeMounts"]
    assert {"name": "token", "secret": {"secretName": "mine"}} in pod(values)["volumes"]
    assert "secretKeyRef" not in str(pod(values)), "an environment is printed by everybody who looks into the pod"
    assert "token" not in str(pod(FULL)["volumes"]) + str(daemon(FULL)["env"]), "nobody is asked for one there"


@BOTH
def test_the_daemon_understands_how_it_is_started(values: HealthValues) -> None:
    command = daemon(values)["command"]
    assert command[:3] == ["python3", "-I", "-S"]
    assert command[4] in PROGRAMS
    assert parse(command[5:]) == options(values)


def test_values_reach_the_daemon() -> None:
    started = options(FULL)
    assert (started.port, started.bw, started.w, started.invasive_check_timer) == (4444, 20.0, "600s", "0s")
    assert (started.checks, started.label, started.compatible) == ("ping,pvc", True, True)
    environment = {one["name"]: one.get("value") for one in daemon(FULL)["env"]}
    assert environment["PVC_TEST_STORAGE_CLASS"] == "fast"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert {"NODE_NAME", "POD_NAME", "POD_IP", "NAMESPACE"} <= set(environment)


def test_daemons_find_each_other_by_the_label_of_their_pods() -> None:
    assert options(USUAL).pods == f"{NAME}={SERVICE}"
    assert daemon_set(USUAL)["spec"]["template"]["metadata"]["labels"][NAME] == SERVICE
    assert check_pod(USUAL)["metadata"]["labels"][NAME] != SERVICE, "whoever asks is no daemon"


def test_rights_are_reading_and_what_was_asked_for() -> None:
    reading = {("", "pods", "list"), ("", "nodes", "get"), ("", "nodes", "list")}
    looks = HealthValues(deep_interval_seconds=0)
    assert rights(looks, "ClusterRole") == reading
    assert rights(looks, "Role") == set()
    assert rights(USUAL, "ClusterRole") == reading | {("", "nodes", "patch")}, "the hold before a deep test"
    storage = {("storage.k8s.io", "storageclasses", "get")}
    assert rights(FULL, "ClusterRole") == reading | {("", "nodes", "patch")} | storage
    assert rights(FULL, "Role") == {("", "persistentvolumeclaims", verb) for verb in ("create", "get", "delete")}
    assert {resource for _, names, _ in READS for resource in names}.isdisjoint({"secrets", "pods/exec"})


@BOTH
def test_rights_belong_to_the_daemons_account_alone(values: HealthValues) -> None:
    for item in health(values):
        if item["kind"].endswith("Binding"):
            assert item["subjects"] == [{"kind": "ServiceAccount", "name": SERVICE, "namespace": values.namespace}]
            assert item["roleRef"]["name"] == item["metadata"]["name"]
    assert pod(values)["serviceAccountName"] == SERVICE
    assert of(values, "ServiceAccount")[SERVICE]["automountServiceAccountToken"] is False, "nobody else gets it unasked"


def test_two_services_of_one_cluster_do_not_take_each_others_rights() -> None:
    other = HealthValues(namespace="other")
    assert set(of(USUAL, "ClusterRole")).isdisjoint(of(other, "ClusterRole"))


def test_the_daemon_has_one_capability_and_is_not_root() -> None:
    security = daemon(USUAL)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    told = pod(USUAL)["securityContext"]
    assert (told["runAsNonRoot"], told["runAsUser"]) == (True, 65532)
    assert told["seccompProfile"] == {"type": "RuntimeDefault"}
    assert told["sysctls"][0]["name"] == "net.ipv4.ping_group_range", "a capability is no use to who is not root"
    assert "sysctls" not in pod(HealthValues(host_network=True))["securityContext"], "Kubernetes refuses it there"
    for one in (pod(USUAL)["initContainers"][0], check_pod(USUAL)["spec"]["containers"][0]):
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_privileges_are_there_only_where_they_are_asked_for() -> None:
    assert daemon(FULL)["securityContext"] == {"privileged": True}
    assert "runAsUser" not in pod(FULL)["securityContext"]
    assert "privileged" not in json.dumps(daemon_set(USUAL))


@BOTH
def test_every_mount_has_its_volume_and_programs_come_from_our_image(values: HealthValues) -> None:
    there = {volume["name"] for volume in pod(values)["volumes"]}
    [first], [main] = pod(values)["initContainers"], pod(values)["containers"]
    used = {mount["name"] for one in (first, main) for mount in one["volumeMounts"]}
    assert used == there
    assert (first["image"], main["image"]) == (values.programs_image, values.image)
    [brought] = first["volumeMounts"]
    assert main["command"][3].startswith(brought["mountPath"])


@BOTH
def test_services_lead_to_ports_of_the_daemon(values: HealthValues) -> None:
    ports = {port["name"]: port["containerPort"] for port in daemon(values)["ports"]}
    services = of(values, "Service")
    for service in services.values():
        [port] = service["spec"]["ports"]
        assert ports[port["targetPort"]] == port["port"]
        assert service["spec"]["selector"] == daemon_set(values)["spec"]["selector"]["matchLabels"]
    expected = {SERVICE: values.port, f"{SERVICE}-readiness": 8080, f"{SERVICE}-metrics": 8081}
    alias = {ALIAS: values.port} if values.compatible else {}
    assert {name: one["spec"]["ports"][0]["port"] for name, one in services.items()} == expected | alias
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert daemon(values)[probe]["httpGet"]["port"] in ports


def test_nodes_in_quarantine_are_watched_unless_taints_are_named() -> None:
    assert pod(USUAL)["tolerations"] == [{"operator": "Exists"}]
    assert pod(FULL)["tolerations"] == [
        {"key": "amd.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "x", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_what_a_site_says_stands_in_its_place() -> None:
    spec = pod(FULL)
    assert spec["nodeSelector"] == {"amd.com/gpu.present": "true"}
    assert spec["imagePullSecrets"] == check_pod(FULL)["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert (spec["runtimeClassName"], spec["hostNetwork"]) == ("nvidia", True)
    notes = daemon_set(FULL)["spec"]["template"]["metadata"]["annotations"]
    assert notes["k8s.v1.cni.cncf.io/networks"] == "net1"
    assert notes["prometheus.io/port"] == "8081"


def test_the_prometheus_operator_is_told_only_where_it_is_there() -> None:
    assert not {item["kind"] for item in health(USUAL)} & {"ServiceMonitor", "PrometheusRule"}
    [monitor] = of(FULL, "ServiceMonitor").values()
    [rule] = of(FULL, "PrometheusRule").values()
    assert rule["spec"] == rules(FULL)
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    chosen = [name for name, one in of(FULL, "Service").items() if one["metadata"]["labels"].items() >= wanted]
    assert chosen == [f"{SERVICE}-metrics"]
    [port] = of(FULL, "Service")[chosen[0]]["spec"]["ports"]
    assert monitor["spec"]["endpoints"][0]["port"] == port["name"]


def test_the_pod_that_asks_ends_by_itself_and_has_no_rights() -> None:
    made = check_pod(FULL)
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["activeDeadlineSeconds"] == 600
    assert made["spec"]["automountServiceAccountToken"] is False
    command = made["spec"]["containers"][0]["command"]
    assert command[1] in PROGRAMS
    assert command[2] == "--url=http://primus-health.gpus.svc:4444/status?host=all"


@given(
    st.builds(
        HealthValues,
        interval_seconds=st.integers(60, 86400),
        deep_interval_seconds=st.just(0),
        pcie_gbs=st.integers(1, 500),
        write_labels=st.booleans(),
        host_network=st.booleans(),
        node_selector=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    )
)
def test_values_survive_their_file_and_always_make_a_daemon(values: HealthValues) -> None:
    assert load_text(HealthValues, dump(values)) == values
    assert parse(daemon(values)["command"][5:]) == options(values)
