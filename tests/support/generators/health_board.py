"""The board of the health service for Grafana: what is wrong now on top, below it figures by node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workflows.platform.health_alerts import GAUGE, UP
from workflows.platform.pod_shapes import Manifest

TITLE = "Node health"
BOARD = "primus-health"
"""Its id, which stands in links."""
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDE = 24
"""Columns of Grafana's grid."""
NODES = 'node=~"$node"'
"""In every query: the nodes that are chosen above."""


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    kind: str
    """`stat`, `timeseries` or `table`."""
    queries: tuple[tuple[str, str], ...]
    """Query and legend."""
    unit: str = "short"
    width: int = 12
    height: int = 8
    red_from: float | None = None
    """Figures from here on are red."""
    red_below: float | None = None
    """Figures up to here are red."""
    told: str = ""
    """What the figure means and what to do."""


def _bad(check: str) -> str:
    return f'{GAUGE}{{health="{check}",{NODES}}}'


def _count(title: str, check: str, told: str) -> Panel:
    query = f"sum(max by (node, deviceid) ({_bad(check)})) or vector(0)"
    return Panel(title, "stat", ((query, ""),), width=4, height=4, red_from=1, told=told)


PANELS: Sequence[Panel] = (
    Panel(
        "Nodes by verdict",
        "stat",
        ((f"count by (verdict) (max by (node, verdict) (primus_node_verdict{{{NODES}}}))", "{{verdict}}"),),
        width=8,
        height=4,
        told="A node counts under each verdict that one of its depths has. Unknown is never healthy.",
    ),
    Panel(
        "Nodes without metrics",
        "stat",
        ((f"count(max by (node) ({UP}) == 0) or vector(0)", ""),),
        width=4,
        height=4,
        red_from=1,
        told="The daemon there cannot be scraped.",
    ),
    _count("GPUs slowed down", "power-slowdown", "By their hardware: heat, or power that is missing."),
    _count("GPUs with rows to remap", "remapped", "Remapped at the next reset of the GPU."),
    _count("Failed diagnostics", "dcgm", "Nodes on which a test of the GPU diagnostic failed."),
    Panel(
        "PCIe bandwidth, lowest first",
        "timeseries",
        ((f"bottomk(20, min by (node, deviceid) ({_bad('pciebw')}))", "{{node}} GPU {{deviceid}}"),),
        unit="GBs",
        red_below=4,
        told="Between host and GPU. The twenty lowest.",
    ),
    Panel(
        "PCIe bandwidth of all GPUs",
        "timeseries",
        (
            (f"min({_bad('pciebw')})", "lowest"),
            (f"quantile(0.5, {_bad('pciebw')})", "median"),
            (f"max({_bad('pciebw')})", "highest"),
        ),
        unit="GBs",
    ),
    Panel(
        "Not reached by others",
        "timeseries",
        ((f"sum by (deviceid) ({_bad('ping')}) > 0 or vector(0)", "{{deviceid}}"),),
        red_from=1,
        told="How many of the chosen nodes do not reach it.",
    ),
    Panel(
        "Volumes and GPU memory",
        "timeseries",
        (
            (f"sum(max by (node) ({_bad('pvc')})) or vector(0)", "nodes that cannot make a volume"),
            (f"sum(max by (node, deviceid) ({_bad('gpumem')})) or vector(0)", "GPUs with slow memory"),
        ),
        red_from=1,
    ),
    Panel(
        "Verdicts",
        "table",
        ((f"max by (node, depth, verdict) (primus_node_verdict{{{NODES}}}) == 1", ""),),
        told="By depth of the test.",
    ),
    Panel(
        "Age of checks, oldest first",
        "timeseries",
        ((f"topk(20, max by (node, check) (primus_node_check_age_seconds{{{NODES}}}))", "{{node}} {{check}}"),),
        unit="s",
        told="What was found longer ago than two rounds is no proof any more.",
    ),
    Panel(
        "Bandwidth between nodes, lowest first",
        "timeseries",
        (
            (
                'bottomk(20, min by (iface, source, destination) (autopilot_iperf_gbits{source=~"$node"}))',
                "{{source}} to {{destination}} on {{iface}}",
            ),
        ),
        unit="Gbits",
        told="Of the newest iperf; empty until somebody asks for one.",
    ),
    Panel(
        "Requests",
        "timeseries",
        (("sum by (path, code) (rate(primus_health_requests_total[5m]))", "{{path}} {{code}}"),),
        unit="reqps",
    ),
)


def board() -> Manifest:
    """The board as Grafana imports it."""
    return {
        "uid": BOARD,
        "title": TITLE,
        "tags": ["primus-flows"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), _nodes()]},
        "annotations": {"list": []},
        "panels": [_panel(number, *item) for number, item in enumerate(zip(PANELS, _places(PANELS), strict=True), 1)],
    }


def _source() -> Manifest:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _nodes() -> Manifest:
    query = "label_values(primus_node_verdict, node)"
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "nodes"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 7,
    }


def _places(panels: Sequence[Panel]) -> list[Manifest]:
    """Where each stands: from left to right, and a row below where one does not fit any more."""
    found: list[Manifest] = []
    x = y = tallest = 0
    for panel in panels:
        if x + panel.width > WIDE:
            x, y, tallest = 0, y + tallest, 0
        found.append({"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, tallest = x + panel.width, max(tallest, panel.height)
    return found


def _panel(number: int, panel: Panel, place: Manifest) -> Manifest:
    instant = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": legend or "__auto",
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for index, (query, legend) in enumerate(panel.queries)
    ]
    defaults = {"unit": panel.unit, "thresholds": _thresholds(panel)}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.told} if panel.told else {}),
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {},
    }


def _thresholds(panel: Panel) -> Manifest:
    steps: list[Manifest] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    if panel.red_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    return {"mode": "absolute", "steps": steps}
