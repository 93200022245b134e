"""A figure on a node's page becomes a message to a person: a real Prometheus, a real Alertmanager, a real receiver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from profiles.health import HealthValues
from tests.support.servers.prometheus_server import (
    Listener,
    Prometheus,
    eventually,
    missing_program,
    prometheus_and_alertmanager,
)
from workflows.platform.health_alerts import JOB, rules, scrape_config
from workflows.programs.health.iperf_results import IperfMatrix, metrics_of
from workflows.programs.health.results import FAIL, PASS, UNKNOWN, DeviceResult, Result, metrics_text

pytestmark = pytest.mark.story

BOARD = Path(__file__).parents[2] / "deployments" / "dashboards" / "health.json"

Json = dict[str, Any]


@dataclass
class Node:
    """A node's page of metrics, as its daemon writes it."""

    name: str
    pcie_gbs: float = 55.0
    reached: bool = True
    age_seconds: float = 60.0
    dcgm: str = PASS
    listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        self.listener = Listener(self.page)

    def page(self) -> str:
        now = time.time()
        zeros = tuple(DeviceResult(str(index), PASS) for index in range(8))
        pcie = (DeviceResult("0", PASS, 54.0), DeviceResult("1", FAIL if self.pcie_gbs <= 4 else PASS, self.pcie_gbs))
        ping = (DeviceResult("node-c", PASS if self.reached else FAIL),)
        made = (
            Result("pciebw", pcie[1].verdict, devices=pcie, unit="GB/s"),
            Result("remapped", PASS, devices=zeros),
            Result("gpupower", PASS, devices=zeros),
            Result("gpumem", PASS, devices=zeros),
            Result("dcgm", self.dcgm),
            Result("ping", ping[0].verdict, devices=ping),
            Result("pvc", PASS),
        )
        timed = tuple(one.timed(now - self.age_seconds, 0.5) for one in made)
        found = IperfMatrix((self.name, "node-c"), {"net1-0": {(self.name, "node-c"): 391.5}})
        models = ("Some CPU", "Some GPU")
        page = metrics_text(self.name, models, timed, {("/status", 200): int(now), ("/dcgm", 401): 3}, now)
        return page + metrics_of(found)

    def target(self) -> Json:
        """As Kubernetes would tell of its pod."""
        pod = "__meta_kubernetes_pod"
        told = {"node_name": self.name, "name": f"{JOB}-{self.name}", "container_port_name": "metrics"}
        labels = {f"{pod}_{key}": value for key, value in told.items()}
        labels[f"{pod}_label_app_kubernetes_io_name"] = JOB
        return {"targets": [self.listener.place], "labels": labels}


def quick(made: Json) -> Json:
    """The same rules, which wait for a second only; that nobody is scraped is so at the very beginning."""
    waits = {"NoHealthMetrics": "30s"}
    return {
        "groups": [
            {**one, "rules": [{**rule, "for": waits.get(rule["alert"], "1s")} for rule in one["rules"]]}
            for one in made["groups"]
        ]
    }


@dataclass
class Stage:
    prometheus: Prometheus
    receiver: Listener
    bad: Node
    good: Node

    def told(self, alert: str, status: str = "firing") -> list[Json]:
        """Messages of that kind that arrived."""
        return [
            one
            for post in list(self.receiver.posted)
            for one in post["alerts"]
            if one["labels"]["alertname"] == alert and one["status"] == status
        ]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    reason = missing_program()
    if reason:
        pytest.skip(reason)
    receiver, bad, good = Listener(), Node("node-a"), Node("node-b")
    job = scrape_config(HealthValues())
    del job["kubernetes_sd_configs"]  # no Kubernetes here; labels as it tells them stand beside the addresses
    job |= {"static_configs": [bad.target(), good.target()], "scrape_interval": "500ms"}
    try:
        with prometheus_and_alertmanager(
            tmp_path_factory.mktemp("prometheus"), quick(rules(HealthValues())), [job], f"http://{receiver.place}/"
        ) as prometheus:
            eventually("both are scraped", lambda: len(prometheus.query(f'up{{job="{JOB}"}} == 1')) == 2)
            yield Stage(prometheus, receiver, bad, good)
    finally:
        for one in (receiver, bad.listener, good.listener):
            one.close()


def test_a_healthy_cluster_is_silent_and_known_by_its_own_names(stage: Stage) -> None:
    nodes = eventually("verdicts", lambda: stage.prometheus.values("node", "primus_node_verdict"))
    assert nodes == ["node-a", "node-b"], "what the board offers to choose from"
    assert stage.prometheus.query('primus_node_verdict{exported_node!=""}') == []
    [one] = stage.prometheus.query('autopilot_health_checks{health="pciebw",node="node-a",deviceid="1"}')
    assert one["metric"]["pod"] == f"{JOB}-node-a"
    rules_of = stage.prometheus.rules
    eventually("all are evaluated", lambda: rules_of() and {one["health"] for one in rules_of()} == {"ok"})
    eventually("nothing waits or fires", lambda: stage.prometheus.query("ALERTS") == [])
    assert stage.receiver.posted == []


def shown() -> list[tuple[str, str]]:
    return [
        (f"{panel['title']}, {target['refId']}", target["expr"].replace("$node", ".*"))
        for panel in json.loads(BOARD.read_text())["panels"]
        for target in panel["targets"]
    ]


@pytest.mark.parametrize(("panel", "query"), shown(), ids=[name for name, _ in shown()])
def test_every_panel_of_the_board_has_data(stage: Stage, panel: str, query: str) -> None:
    found = eventually(panel, lambda: stage.prometheus.query(query))
    assert all(sample["value"][1] != "NaN" for sample in found)


def test_a_slow_link_is_told_to_a_person_and_taken_back_when_it_is_mended(stage: Stage) -> None:
    stage.bad.pcie_gbs = 3.5
    [told] = eventually("the message", lambda: stage.told("LowPCIeBandwidth"))
    assert told["labels"] == {
        "alertname": "LowPCIeBandwidth", "node": "node-a", "deviceid": "1", "severity": "warning", "alert": "autopilot",
    }  # fmt: skip
    assert told["annotations"]["description"] == "GPU 1 of node node-a moves 3.5 GB/s to and from its host."
    [node] = eventually("the node's own", lambda: stage.told("GPUNodeHealth"))
    assert node["labels"]["node"] == "node-a"
    stage.bad.pcie_gbs = 55.0
    eventually("the message that it is over", lambda: stage.told("LowPCIeBandwidth", "resolved"))
    assert stage.told("LowPCIeBandwidth", "resolved")[0]["labels"]["deviceid"] == "1"
    eventually("the node's own", lambda: stage.told("GPUNodeHealth", "resolved"))


def test_a_node_that_others_do_not_reach_is_told_once(stage: Stage) -> None:
    stage.bad.reached = stage.good.reached = False
    everywhere = "2 nodes do not reach node-c."
    told = lambda: [one["annotations"]["description"] for one in stage.told("PingFailures")]  # noqa: E731
    eventually("both say so", lambda: everywhere in told())
    assert {one["labels"]["deviceid"] for one in stage.told("PingFailures")} == {"node-c"}
    stage.bad.reached = stage.good.reached = True
    eventually("it is over", lambda: stage.told("PingFailures", "resolved"))


def test_checks_that_run_no_longer_and_find_nothing_out_are_told(stage: Stage) -> None:
    stage.bad.age_seconds, stage.good.dcgm = 8000.0, UNKNOWN
    told = eventually("all checks", lambda: len(stage.told("HealthCheckStale")) >= 5 and stage.told("HealthCheckStale"))
    assert {one["labels"]["check"] for one in told} == {"pciebw", "remapped", "dcgm", "ping", "gpupower"}
    assert {one["labels"]["node"] for one in told} == {"node-a"}
    unknown = eventually("unknown", lambda: stage.told("NodeHealthUnknown"))
    assert {(one["labels"]["node"], one["labels"]["depth"]) for one in unknown} == {("node-b", "smoke")}
    stage.bad.age_seconds, stage.good.dcgm = 60.0, PASS
    eventually("it is over", lambda: stage.told("NodeHealthUnknown", "resolved"))


def test_a_node_that_falls_silent_is_told(stage: Stage) -> None:
    stage.good.listener.close()
    [told] = eventually("the message", lambda: stage.told("NodeWithoutHealthMetrics"))
    assert told["labels"]["node"] == "node-b"
    assert told["labels"]["severity"] == "critical"
    assert stage.told("NoHealthMetrics") == [], "the other one still speaks"
