"""A cluster whose pods are made up: members of groups and pairs tell what a simulated fabric says, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from flows.decisions.node_tests.fabric.model import Measurement
from tasks.cluster import Seen
from tests.support.fakes.fabrics import World
from workflows import labels
from workflows.programs.fabric.pair_member import PairCall, pair_calls
from workflows.programs.fabric.report import GPUS, SOCKETS, GangReport, PairReport
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.run import pack_answers

Object = dict[str, Any]
Measure = Callable[[tuple[str, ...]], Measurement]
Asked = Callable[[str, str, PairCall], ParsedOutput]
"""What a node tells of a call when it asks another one."""
GOOD: dict[str, tuple[float, str]] = {
    "pair_round_trip": (20.0, "us"),
    "pair_round_trip_p99": (40.0, "us"),
    "pair_lost_datagrams": (0.0, "%"),
    "packet_loss": (0.0, "%"),
    "rdma_bandwidth": (391.0, "Gb/s"),
    "rdma_latency": (2.0, "us"),
}


def good(_asking: str, _asked: str, call: PairCall) -> ParsedOutput:
    """What two good nodes tell."""
    return ParsedOutput(tuple(Reading(name, *GOOD[name], line=f"{name} as usual") for name in call.quantities))


class LinkedNodes:
    """Takes the workflows of a round and answers for their pods, once all members of a group are there."""

    name = "made-up"

    def __init__(self, world: World, racks: Mapping[str, str], seed: int = 1, by: str = SOCKETS) -> None:
        self.world, self.racks, self.by = world, racks, by
        self.chance = Random(seed)
        self.rounds: list[list[tuple[str, ...]]] = []
        """Groups of each round."""
        self.pair_rounds: list[list[tuple[str, ...]]] = []
        self.pair_calls: list[tuple[str, ...]] = []
        """Titles of the calls of each round of pairs."""
        self.asked: Asked = good
        self.silent: dict[str, str] = {}
        """Nodes whose pods leave no report, and in which phase they end."""
        self.wrong: set[str] = set()
        """Nodes that compute wrong values."""
        self.objects: dict[str, Object] = {}
        self.begun: list[str] = []
        """Names of all workflows that ever were."""
        self.deleted: list[str] = []

    def apply(self, manifest: Object, *, dry_run: bool = False) -> Object:
        if not dry_run:
            assert manifest["metadata"]["name"] not in self.objects
            self.objects[manifest["metadata"]["name"]] = manifest
            self.begun.append(manifest["metadata"]["name"])
        return manifest

    def get(self, kind: str, name: str) -> Object | None:
        found = self.objects.get(name)
        if found is not None and "status" not in found:
            self._answer(name.rpartition("-")[0])
        return self.objects.get(name) if kind == "Workflow" else None

    def delete(self, kind: str, name: str, *, grace_seconds: int | None = None) -> None:
        self.deleted.append(name)
        self.objects.pop(name, None)

    def watch(self, kind: str, labels_: Mapping[str, str] | None = None, **_: object) -> Iterator[Seen]:
        if kind == "Node":
            for node, rack in self.racks.items():
                yield Seen("ADDED", {"metadata": {"name": node, "labels": {labels.RACK: rack}}}, "1")

    def _answer(self, round_: str) -> None:
        """All workflows of a round end at once."""
        flows = {name: one for name, one in self.objects.items() if name.rpartition("-")[0] == round_}
        seats = [(name, seat) for name, one in flows.items() for seat in seats_of(one)]
        groups: dict[str, list[str]] = {}
        for _, seat in seats:
            groups.setdefault(seat["group"], []).append(seat["node"])
        calls = calls_of(next(iter(flows.values())))
        (self.rounds if calls is None else self.pair_rounds).append([tuple(group) for group in groups.values()])
        if calls is not None:
            self.pair_calls.append(tuple(call.title for call in calls))
            for name, one in flows.items():
                own = {seat["node"]: self._half(seat, groups[seat["group"]], calls) for n, seat in seats if n == name}
                one["status"] = {"phase": "Succeeded", "nodes": own}
            return
        sizes = {seat["group"]: int(seat["ranks"]) for _, seat in seats}
        told = {number: self._measured(tuple(group), sizes[number]) for number, group in groups.items()}
        nodes: dict[str, Object] = {name: {} for name in flows}
        for name, seat in seats:
            nodes[name][seat["node"]] = self._pod(seat, groups[seat["group"]], told[seat["group"]])
        for name, one in flows.items():
            one["status"] = {"phase": "Succeeded", "nodes": nodes[name]}

    def _measured(self, group: tuple[str, ...], size: int) -> Measurement:
        """Where workflows of the round are missing, those who came wait in vain."""
        return self.world.measure(group, self.chance) if len(group) == size else Measurement(group, None)

    def _pod(self, seat: Mapping[str, str], group: list[str], told: Measurement) -> Object:
        node, rails = seat["node"], told.gigabytes_per_second
        missed = tuple(group.index(other) for other in group if other in self.silent)
        if missed:
            rails = None
        wrong = 3 if self.wrong & set(group) else 0
        why = "" if rails else "did not come"
        report = GangReport(
            node, int(seat["group"]), int(seat["rank"]), 5.0, self.by, rails, 1.0, None, wrong, missed, why
        )
        return self._ended(node, report.text())

    def _half(self, seat: Mapping[str, str], pair: list[str], calls: tuple[PairCall, ...]) -> Object:
        node, other = seat["node"], pair[1 - int(seat["rank"])]
        report = PairReport(node, int(seat["group"]), int(seat["rank"]), 5.0, why="its partner did not come in time")
        if other not in self.silent:
            answers = pack_answers({call.number: [self.asked(node, other, call)] * call.attempts for call in calls})
            report = replace(report, partner=other, answers=answers, why="")
        return self._ended(node, report.text())

    def _ended(self, node: str, report: str) -> Object:
        outputs = {"parameters": [{"name": "report", "value": report if node not in self.silent else "{}"}]}
        inputs = {"parameters": [{"name": "node", "value": node}]}
        ended = {"phase": self.silent.get(node, "Succeeded"), "message": "OOMKilled" if node in self.silent else ""}
        return {"type": "Pod", "templateName": "member-0", "inputs": inputs, "outputs": outputs, **ended}


def seats_of(manifest: Object) -> list[dict[str, str]]:
    """Node, group, rank and size of its group, of every pod that a workflow starts."""
    steps = [step for item in manifest["spec"]["templates"] for group in item.get("steps", ()) for step in group]
    return [item for step in steps for item in step["withItems"]]


def calls_of(manifest: Object) -> tuple[PairCall, ...] | None:
    """What its pods are asked as pairs; None: they are members of groups."""
    words = [word for item in manifest["spec"]["templates"] for word in item.get("container", {}).get("command", ())]
    own = next((word for word in words if word.startswith("--calls=")), None)
    return None if own is None else pair_calls(own.partition("=")[2])


def by_gpus(world: World, racks: Mapping[str, str]) -> LinkedNodes:
    """Members that reach each other's GPUs."""
    return LinkedNodes(world, racks, by=GPUS)
