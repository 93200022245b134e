"""The same made-up nodes for every launcher: fake tools on one PATH that behave by the node that asks, and what is
expected of each. Whoever starts the probe, the records must be equal but for time.

A launcher's story makes `FakedNodes` in a folder, lets its hosts (pods, jobs) have `PATH=<faked.path>`, tests `NODES`,
and compares `verdicts(plan, told)` with `EXPECTED` and with what another launcher's told. Where there are fewer real
nodes than made-up ones, some `play` them, several one after the other, and `as_played` gives the answers their names.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flows.decisions.node_tests.grading.grade import records_of
from flows.decisions.node_tests.judge import NodeAnswer, judge, rule_of
from profiles.checks.catalogue import Launcher
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_hardware
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.node_tests.preflight import Wanted, plan_of, run_preflight
from tasks.settings import Settings, localised
from tests.support.cases.tool_samples import printed
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan, calls_of, node_checks

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STREAM, LOSING = printed("iperf3", "3.16-text-written.txt"), printed("iperf3", "3.1-text.txt")
BEHAVIOURS: dict[str, str] = {
    "node-0": f"cat <<'END'\n{STREAM}\nEND",
    "node-1": f"cat <<'END'\n{LOSING}\nEND",
    "node-2": "exec sleep 600",
    "node-3": "echo 'Connecting to host'; kill -9 $$",
    "node-4": "echo 'a banner of the site'",
    "node-5": "echo 'iperf3: error - unable to connect to server: Connection refused'; exit 1",
}
"""What the fake `node-stream` does on each node, as a shell's lines."""
NODES = tuple(BEHAVIOURS)
CHECKS = ("kernel", "host-only", "pod-only", "stream", "absent")
EXPECTED: dict[str, tuple[str, str]] = {
    "node-0": ("pass", "pass"),
    "node-1": ("fail", "fail"),
    "node-2": ("unknown", "unknown"),
    "node-3": ("unknown", "unknown"),
    "node-4": ("unknown", "unknown"),
    "node-5": ("unknown", "unknown"),
}
"""Node -> its verdict, and that of the check `stream`."""
OF_THE_CLUSTER = ("cluster",)
"""What a record says of where it was measured: all in which two clusters may differ."""


class FakedNodes:
    """The fake tools in a folder.

    Args:
        folder: of the tools; on the PATH of whoever runs the probe.
        players: made-up node -> the node on which the tool behaves like it; none: each is there by its own name.
    """

    def __init__(self, folder: Path, players: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        played = {node: node for node in NODES} if players is None else players
        cases = "\n".join(f"{player})\n{BEHAVIOURS[node]}\n;;" for node, player in played.items())
        tool = folder / "node-stream"
        tool.write_text(f'#!/bin/sh\ncase "$PRIMUS_NODE" in\n{cases}\n*) echo "asked as: $PRIMUS_NODE";;\nesac\n')
        tool.chmod(0o755)

    @property
    def path(self) -> str:
        """PATH of whoever runs the probe."""
        return f"{self.folder}:{SYSTEM_PATH}"


def suite(stream_seconds: int = 2, words: Sequence[str] = ()) -> SuiteProfile:
    """Checks of which every node makes those that fit its launcher; seconds and arguments of the check `stream`."""
    stream = {
        "quantity": "network_retransmits",
        "unit": "count",
        "direction": "lower_is_better",
        "parser": "iperf3",
        "deadline_seconds": stream_seconds,
        "limits": {"absolute": [{"at_most": 100, "source": "the story"}]},
    }
    kernel = {
        "probe": {"name": "versions"},
        "quantity": "kernel_version",
        "unit": "",
        "direction": "text_equal",
        "deadline_seconds": 20,
        "limits": {"absolute": [{"words": [platform.release()], "source": "the story"}]},
    }
    common = {"depth": "device", "fault_class": "config", "what_to_do": "Look at it."}
    return SuiteProfile.model_validate(
        {
            "name": "launchers",
            "checks": [
                {"name": "kernel", **common, **kernel},
                {"name": "host-only", **common, **kernel, "launchers": ["ansible", "slurm"]},
                {"name": "pod-only", **common, **kernel, "launchers": ["kubernetes"]},
                {"name": "stream", **common, **stream, "command": ["node-stream", *words]},
                {"name": "absent", **common, **stream, "command": ["no-such-stream"], "severity": "warning"},
            ],
            "deadline_seconds": {"device": 120},
            "good_for_hours": {"device": 1},
        }
    )


def plan(profile: ClusterProfile, launcher: Launcher, nodes: Sequence[str] = NODES, number: int = 1) -> PreflightPlan:
    """The test of the made-up nodes; the profile's first pool has nodes of these names."""
    pools = {node: profile.pools[0].name for node in nodes}
    return plan_of(Wanted(profile, suite(), "device", pools, launcher), number)


def verdicts(asked: PreflightPlan, told: Sequence[NodeResult]) -> dict[str, Any]:
    """What stands in the ledger afterwards, by node, without times; checks of one launcher only are left out."""
    hardware = load_hardware(asked.cluster.pools[0].hardware)
    checks = node_checks(asked.suite, asked.depth, hardware, asked.launcher)
    numbers = calls_of(checks).number_of
    answers = [
        NodeAnswer(
            item.node,
            hardware.name,
            {name: tuple(item.answers[number]) for name, number in numbers.items() if number in item.answers},
        )
        for item in told
    ]
    grades = judge({hardware.name: checks}, {hardware.name: hardware}, answers)
    rules = [rule_of(check, hardware) for check in checks if not check.launchers]
    return {
        node: [_timeless(asdict(record)) for record in records_of(grade, rules, asked.cluster.name, 0.0)]
        for node, grade in grades.items()
    }


def as_played(told: Sequence[NodeResult], players: Mapping[str, str]) -> list[NodeResult]:
    """Answers of nodes under the names of those that they played."""
    names = {player: node for node, player in players.items()}
    return [replace(item, node=names[item.node]) for item in told]


def of_any_cluster(records: Mapping[str, Any]) -> dict[str, Any]:
    """Records without what differs from cluster to cluster."""
    return {
        node: [{field: value for field, value in record.items() if field not in OF_THE_CLUSTER} for record in all_of_it]
        for node, all_of_it in records.items()
    }


def outline(records: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Verdict of the node and of the check `stream`, as in `EXPECTED`."""
    return {
        node: (str(record["verdict"]), next(one["verdict"] for one in record["reasons"] if one["check"] == "stream"))
        for node, [record] in records.items()
    }


def cluster_of(home: Path, **more: object) -> ClusterProfile:
    """The embedded cluster of this machine, whose nodes are those of `NODES`."""
    return localised(load_cluster("local"), home).model_copy(update=more)


def settings_in(home: Path) -> Settings:
    """Of a home of its own, with a ledger: whoever tests nodes in a cluster signs what it makes there."""
    settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
    settings.make_home()
    return settings


def told_by_pods(home: Path, faked: FakedNodes) -> tuple[PreflightPlan, list[NodeResult]]:
    """What the made-up nodes tell in pods of the embedded cluster."""
    own = load_cluster("local")
    images = tuple(
        image.model_copy(update={"environment": {"PATH": faked.path}}) if "programs" in image.pattern else image
        for image in own.images
    )
    profile = cluster_of(home, images=images)
    asked = plan(profile, "kubernetes")
    cluster = embedded_cluster(profile, home)
    try:
        with at_hand(settings_in(home)), using(cluster):
            return asked, run_preflight(asked, lambda phase, told: None)
    finally:
        cluster.stop()


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    """Without what a clock says: how much of a limit was left when a tool was started."""
    reasons = [
        {**reason, "evidence": re.sub(r"\d+(\.\d+)? s\b", "# s", str(reason["evidence"]))}
        for reason in record["reasons"]
    ]
    return {**record, "verdict": str(record["verdict"]), "reasons": reasons}
