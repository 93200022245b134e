"""Alerts and board of the health service: what is shipped is what is built, and every alert fires and clears."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.health import HealthValues
from workflows.platform.health_alerts import UP as SCRAPED
from workflows.platform.health_alerts import Alert, groups, operator_objects, rules, scrape_config
from workflows.programs.health.iperf_results import METRIC

FOLDER = Path(__file__).parents[4] / "deployments"
WIDE = 24
"""Columns of Grafana's grid."""
REWRITE = os.environ.get("PRIMUS_GOLDEN") == "1"
VALUES = HealthValues()
ALERTS = {alert.name: alert for group in groups(VALUES) for alert in group.alerts}
TOLD = "# Written by `make golden` from workflows/platform/health_alerts.py"
SHIPPED: dict[str, tuple[str, Any]] = {
    "alerts/health.yaml": (f"{TOLD}: a rules file for Prometheus.\n", rules(VALUES)),
    "alerts/scrape.yaml": (
        f"{TOLD}: for a Prometheus that reads a file and may list\n# pods of that namespace.\n",
        {"scrape_configs": [scrape_config(VALUES)]},
    ),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_rules_that_are_shipped_are_what_is_built(name: str) -> None:
    told, made = SHIPPED[name]
    file = FOLDER / name
    if REWRITE:
        file.write_text(told + yaml.safe_dump(made, sort_keys=False, width=110))
    assert yaml.safe_load(file.read_text()) == made, "run: make golden, and look at the difference"


REFERENCE = {
    "LowPCIeBandwidth": (1, "warning"),
    "DCGMLevel1Errors": (1, "warning"),
    "GPUPowerSlowdownEnabled": (1, "warning"),
    "RemappedRowsActive": (1, "warning"),
    "DCGMLevel3Errors": (5, "critical"),
    "PingFailures": (10, "critical"),
    "PVCAlert": (5, "critical"),
    "AutopilotPodsFailing": (15, "critical"),
    "GPUNodeHealth": (1, "warning"),
}
"""Autopilot's alerts: minutes and severity."""


def test_every_alert_of_autopilot_is_there_with_its_time_and_severity() -> None:
    assert {name: (one.for_minutes, one.severity) for name, one in ALERTS.items() if name in REFERENCE} == REFERENCE
    for group in rules(VALUES)["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["alert"] == "autopilot", "receivers select by it"


def test_alerts_have_names_of_their_own_and_say_what_to_do() -> None:
    assert len(ALERTS) == sum(len(group.alerts) for group in groups(VALUES))
    for alert in ALERTS.values():
        assert alert.summary
        assert "{{" not in alert.summary, "a summary is the same for all nodes: alerts are grouped by it"
        assert alert.what_to_do


def test_limits_follow_the_values() -> None:
    wanted = HealthValues(pcie_gbs=20, interval_seconds=600, deep_interval_seconds=0, checks=("ping", "remapped"))
    found = {alert.name: alert for group in groups(wanted) for alert in group.alerts}
    assert found["LowPCIeBandwidth"].query.endswith("<= 20")
    assert found["HealthCheckStale"].query == (
        'max by (node, check) (primus_node_check_age_seconds{check=~"ping|remapped"}) > 1800'
    )


def test_the_operator_gets_the_same_rules() -> None:
    wanted = HealthValues(monitoring_labels={"release": "prometheus"})
    named: dict[str, Any] = {
        "name": "primus-health",
        "namespace": "gpus",
        "labels": {"app.kubernetes.io/name": "primus-health"},
    }
    monitor, rule = operator_objects(wanted, named)
    assert (monitor["kind"], rule["kind"]) == ("ServiceMonitor", "PrometheusRule")
    assert rule["spec"] == rules(wanted)
    for made in (monitor, rule):
        assert made["metadata"]["labels"] == {**named["labels"], "release": "prometheus"}
    assert "release" not in monitor["spec"]["selector"]["matchLabels"], "the Service does not have it"
    assert monitor["spec"]["endpoints"][0]["honorLabels"] is True


@dataclass(frozen=True)
class Case:
    """Series that fire an alert, and what it is about."""

    series: tuple[str, ...]
    labels: dict[str, str]
    value: str = ""
    """As annotations show it."""


def gauge(health: str, **labels: str) -> str:
    told = {"health": health, "node": "node-a", "cpumodel": "c", "gpumodel": "g", "deviceid": "3", **labels}
    shown = ",".join(f'{key}="{value}"' for key, value in told.items())
    return f"autopilot_health_checks{{{shown}}}"


UP = 'up{job="primus-health",node="node-a",instance="10.0.0.1:8081"}'
AGE = 'primus_node_check_age_seconds{node="node-a",check="ping"}'
GPU = {"node": "node-a", "deviceid": "3"}
NODE = {"node": "node-a"}
DCGM = gauge("dcgm", deviceid="")
POD = 'namespace="primus-health",pod="primus-health-x7"'
LABEL_3 = 'kube_node_labels{node="node-a",label_autopilot_ibm_com_dcgm_level_3="ERR_2026-01-02_03.04.05UTC"}'
FIRES: dict[str, Case] = {
    "LowPCIeBandwidth": Case((f"{gauge('pciebw')} 4",), GPU, "4"),
    "LowPCIeBandwidth of a link that is down": Case((f"{gauge('pciebw')} 0",), GPU, "0"),
    "DCGMLevel1Errors": Case((f"{DCGM} 1",), NODE),
    "GPUPowerSlowdownEnabled": Case((f"{gauge('power-slowdown')} 1",), GPU),
    "RemappedRowsActive": Case((f"{gauge('remapped')} 1",), GPU),
    "GPUMemoryTestFailed": Case((f"{gauge('gpumem')} 1",), GPU),
    "DCGMLevel3Errors": Case((f"{LABEL_3} 1",), NODE),
    "PingFailures": Case(
        (f"{gauge('ping', deviceid='node-c')} 1", f"{gauge('ping', deviceid='node-c', node='node-b')} 1"),
        {"deviceid": "node-c"},
        "2",
    ),
    "PVCAlert": Case((f"{gauge('pvc', deviceid='')} 1",), NODE),
    "GPUNodeHealth": Case(('primus_node_verdict{node="node-a",depth="smoke",verdict="fail"} 1',), NODE),
    "GPUNodeHealth by the label EVICT": Case(
        ('kube_node_labels{node="node-a",label_autopilot_ibm_com_gpuhealth="EVICT"} 1',), NODE
    ),
    "GPUNodeHealth by the label WARN": Case(
        ('kube_node_labels{node="node-a",label_autopilot_ibm_com_gpuhealth="WARN"} 1',), NODE
    ),
    "NodeHealthUnknown": Case(
        ('primus_node_verdict{node="node-a",depth="smoke",verdict="unknown"} 1',), {**NODE, "depth": "smoke"}
    ),
    "HealthCheckStale": Case((f"{AGE} 7801",), {**NODE, "check": "ping"}, "7801"),
    "NodeWithoutHealthMetrics": Case((f"{UP} 0", f"{AGE} 5"), NODE),
    "NodeWithoutHealthMetrics that answers and tells nothing": Case((f"{UP} 1",), NODE),
    "NoHealthMetrics": Case((f"{UP} 0",), {}),
    "NoHealthMetrics where nothing is scraped": Case((f"{AGE} 5",), {}),
    "AutopilotPodsFailing": Case(
        (f'kube_pod_status_ready{{{POD},condition="true"}} 0', f'kube_pod_info{{{POD},node="node-a"}} 1'),
        {"namespace": "primus-health", "pod": "primus-health-x7", "node": "node-a"},
        "0",
    ),
}
"""Alert, and in which way -> what fires it."""
HEALTHY = (
    f"{gauge('pciebw')} 55",
    f"{DCGM} 0",
    *(f"{gauge(one)} 0" for one in ("power-slowdown", "remapped", "gpumem", "ping", "pvc")),
    'kube_node_labels{node="node-a",label_autopilot_ibm_com_gpuhealth="PASS"} 1',
    'kube_node_labels{node="node-b",label_autopilot_ibm_com_dcgm_level_3="PASS_2026-01-02_03.04.05UTC"} 1',
    'kube_node_labels{node="node-c",label_autopilot_ibm_com_gpuhealth="TESTING"} 1',
    'primus_node_verdict{node="node-a",depth="smoke",verdict="pass"} 1',
    f"{AGE} 3700",
    'primus_node_check_age_seconds{node="node-a",check="dcgm-3"} 900000',
    f"{UP} 1",
    f'kube_pod_status_ready{{{POD},condition="true"}} 1',
    f'kube_pod_info{{{POD},node="node-a"}} 1',
)


def promtool(*arguments: str) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on PATH (Debian: apt-get install prometheus): alerts were NOT fired")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def filled(text: str, labels: dict[str, str], value: str) -> str:
    """A description as Prometheus writes it."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda hit: labels[hit.group(1)], text)
    return text.replace("{{ $value }}", value)


def expected(alert: Alert, case: Case) -> dict[str, Any]:
    told = {"summary": alert.summary, "description": alert.description, "what_to_do": alert.what_to_do}
    return {
        "exp_labels": {**case.labels, "severity": alert.severity, "alert": "autopilot"},
        "exp_annotations": {key: filled(text, case.labels, case.value) for key, text in told.items()},
    }


def series(line: str, minutes: int, then: str = "") -> dict[str, str]:
    name, _, value = line.rpartition(" ")
    return {"series": name, "values": f"{value}+0x{minutes}" + (f" {then}" if then else "")}


def run(folder: Path, lines: list[dict[str, str]], questions: list[dict[str, Any]]) -> None:
    file = folder / "asked.yaml"
    document = {
        "rule_files": [str(FOLDER / "alerts" / "health.yaml")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": lines, "alert_rule_test": questions}],
    }
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))


def test_each_alert_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in FIRES} == set(ALERTS)


@pytest.mark.parametrize("name", FIRES)
def test_an_alert_waits_fires_and_clears_when_the_cause_is_gone(name: str, tmp_path: Path) -> None:
    alert, case = ALERTS[name.partition(" ")[0]], FIRES[name]
    wait = alert.for_minutes
    question = {"alertname": alert.name, "exp_alerts": list[Any]()}
    asked = [
        {**question, "eval_time": f"{wait - 1}m"},
        {**question, "eval_time": f"{wait}m", "exp_alerts": [expected(alert, case)]},
        # Series end with their cause; a minute after the lookback of 5 they are nobody's any more.
        {**question, "eval_time": f"{wait + 10}m"},
    ]
    end = "stale"
    if alert.name == "NoHealthMetrics":  # the cause is silence: it is gone when somebody speaks
        run(tmp_path, [series(one, wait + 1) for one in case.series], asked[:2])
        return
    run(tmp_path, [series(one, wait + 1, end) for one in case.series], asked)


def test_a_healthy_cluster_alerts_nobody(tmp_path: Path) -> None:
    asked = [{"alertname": name, "eval_time": "60m", "exp_alerts": list[Any]()} for name in ALERTS]
    run(tmp_path, [series(line, 60) for line in HEALTHY], asked)


def test_a_link_that_is_slow_for_half_a_minute_alerts_nobody(tmp_path: Path) -> None:
    asked = {"alertname": "LowPCIeBandwidth", "eval_time": "5m", "exp_alerts": list[Any]()}
    run(tmp_path, [{"series": gauge("pciebw"), "values": "55 3 55 55 55 55 55"}], [asked])


def test_prometheus_takes_rules_and_scrape_configuration(tmp_path: Path) -> None:
    promtool("check", "rules", str(FOLDER / "alerts" / "health.yaml"))
    made = yaml.safe_load((FOLDER / "alerts" / "scrape.yaml").read_text())
    for job in made["scrape_configs"]:
        del job["kubernetes_sd_configs"]  # Debian's Prometheus is built without it
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(made))
    promtool("check", "config", "--syntax-only", str(file))


def board() -> dict[str, Any]:
    return json.loads((FOLDER / "dashboards" / "health.json").read_text())


def targets() -> list[dict[str, Any]]:
    return [target for panel in board()["panels"] for target in panel["targets"]]


def test_panels_of_the_board_stand_beside_and_below_each_other() -> None:
    taken = set[tuple[int, int]]()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= WIDE
        taken |= cells
    assert len({panel["id"] for panel in board()["panels"]}) == len(board()["panels"]) >= 8, "as Autopilot's"


def test_the_board_shows_every_metric_of_ours() -> None:
    asked = " ".join(target["expr"] for target in targets())
    for name in ("primus_node_verdict", "primus_node_check_age_seconds", "primus_health_requests_total", METRIC):
        assert name in asked
    for health in ("pciebw", "remapped", "power-slowdown", "gpumem", "dcgm", "ping", "pvc"):
        assert f'health="{health}"' in asked


def test_panels_ask_the_chosen_source_for_the_chosen_nodes() -> None:
    source, node = board()["templating"]["list"]
    assert (source["name"], node["name"]) == ("source", "node")
    for one in (*board()["panels"], *targets(), node):
        assert one["datasource"] == {"type": "prometheus", "uid": "${source}"}
    for target in targets():
        told = target["expr"]
        of_no_node = SCRAPED in told or "primus_health_requests_total" in told
        assert of_no_node or '=~"$node"' in told, told
    for panel in board()["panels"]:
        now = panel["type"] != "timeseries"
        assert [(one["instant"], one["range"]) for one in panel["targets"]] == [(now, not now)] * len(panel["targets"])
        assert [one["refId"] for one in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])


def test_limits_of_panels_are_those_of_the_alerts() -> None:
    steps = {one["title"]: one["fieldConfig"]["defaults"]["thresholds"]["steps"] for one in board()["panels"]}
    slow = next(found for title, found in steps.items() if title.startswith("PCIe bandwidth, lowest"))
    assert slow == [{"color": "red", "value": None}, {"color": "green", "value": VALUES.pcie_gbs}]
    for title in ("Nodes without metrics", "GPUs slowed down", "Failed diagnostics", "Not reached by others"):
        assert steps[title] == [{"color": "green", "value": None}, {"color": "red", "value": 1}]
