"""One node's checks: run when they are due or asked for, once for all who ask, and remembered.

Standard library only, Python 3.9. Nothing here knows HTTP: `server` and `routes` carry requests in and answers out, and
`main` puts everything together.
"""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from workflows.programs.health import node_checks
from workflows.programs.health.diagnostic import DEADLINES, FATAL, dcgm
from workflows.programs.health.gpu_checks import CHECKS as GPU_CHECKS
from workflows.programs.health.gpu_checks import LOADING, GpuLimits, Tools
from workflows.programs.health.kubernetes import Hold, node_hold, owner_of
from workflows.programs.health.labels import NodeLabels
from workflows.programs.health.peers import LookupFailedError, Nodes, by_node, gpus_asked, pods_on
from workflows.programs.health.query import ALL, NONE, Status, asked_checks
from workflows.programs.health.results import CHECKS, NOT_SUPPORTED, Report, Result, ResultStore
from workflows.programs.probes.call import Call
from workflows.programs.probes.verdicts import UNKNOWN
from workflows.programs.runtime.bounded import ExclusiveTurns, SharedResult, side_by_side
from workflows.programs.runtime.kubernetes_api import Api, ApiError

GPUS = "gpus"
DEEP = "a deep test"
TURN_SECONDS = 60.0
"""So long a check waits for GPUs that another test loads; then it is unknown."""
HOLD_MARGIN_SECONDS = 600.0
"""A hold ends so long after the deep test's own deadline at the latest."""


@dataclass(frozen=True)
class Plan:
    """What this node's daemon is to do."""

    node: str
    namespace: str = "autopilot"
    periodic: Tuple[str, ...] = ("pciebw", "remapped", "dcgm", "ping", "gpupower")
    limits: GpuLimits = field(default_factory=GpuLimits)
    fatal: Tuple[str, ...] = FATAL
    paths: Tuple[str, ...] = ()
    """Tests of a diagnostic that count alone; empty: all."""
    storage_class: str = ""
    deep_level: int = 3
    ping_peers: int = 32
    turn_seconds: float = TURN_SECONDS


class Daemon:
    """The checks of one node, run on a schedule and on request.

    `hold` keeps pods away during a deep test, `marks` writes the node's labels, `say` prints a line to the log,
    and `api` is the cluster's API (None: there is none).
    """

    def __init__(
        self,
        plan: Plan,
        tools: Tools,
        nodes: Nodes,
        api: Optional[Api],
        hold: Hold,
        *,
        marks: NodeLabels,
        say: Callable[[str], None],
    ) -> None:
        self.plan, self.tools, self.nodes = plan, tools, nodes
        self.marks, self.known = marks, ResultStore()
        self._api, self._hold, self._say = api, hold, say
        self._once, self._turns = SharedResult(), ExclusiveTurns()
        self._round = 0
        self._ended = threading.Event()

    def report(self, status: Status) -> Report:
        """Run what is asked for on this node and say what was found."""
        names = asked_checks(status.checks, self.plan.periodic)
        checks = [one for one in names if one in CHECKS]
        notes = [f"{NOT_SUPPORTED}: {one}" for one in names if one not in CHECKS]
        # What loads GPUs runs one after the other, all else beside it.
        loading = [one for one in checks if one in LOADING]
        groups = [[one] for one in checks if one not in LOADING] + ([loading] if loading else [])
        found: Dict[str, Result] = {}
        for group in side_by_side([partial(self._group, one, status) for one in groups]):
            found.update(group)
        results = tuple(found[one] for one in checks)
        self.marks.update(results, self.known.results())
        return Report(self.plan.node, results, self.marks.health, tuple(notes))

    def _group(self, names: Sequence[str], status: Status) -> Dict[str, Result]:
        return {name: self.check(name, status) for name in names}

    def check(self, name: str, status: Status) -> Result:
        """One check, once for all who ask for the same at the same time."""
        level = status.level if name == "dcgm" else 0
        whom = (status.pingnodes, status.job, status.nodelabel) if name == "ping" else ()
        work = partial(self._timed, name, level, name, lambda: self._checked(name, level, status))
        result = self._once.do((name, level, whom), work)
        self.known.add(result)
        return result

    def _timed(self, name: str, level: int, title: str, work: Callable[[], Result]) -> Result:
        at, began = time.time(), time.monotonic()
        try:
            result = work()
        except Exception as error:  # a check that crashes knows nothing, and the others go on
            result = Result(name, UNKNOWN, f"the check crashed: {type(error).__name__}: {error}", level=level)
        self._say(f"{title}: {result.verdict} {result.why[:200]}".rstrip())
        return result.timed(at, time.monotonic() - began)

    def _checked(self, name: str, level: int, status: Status) -> Result:
        if name == "ping":
            return self._ping(status)
        if name == "pvc":
            return node_checks.pvc(self._api, self.plan.namespace, self.plan.node, self.plan.storage_class)
        if name not in LOADING:
            return GPU_CHECKS[name](self.tools, self.plan.node, self.plan.limits)
        with self._turns.turn(GPUS, name, self.plan.turn_seconds) as other:
            if other:
                return Result(name, UNKNOWN, f"{other} is using the GPUs: ask again later", level=level, kept=False)
            if name == "dcgm":
                return dcgm(self.tools, self.plan.node, level, self.plan.paths)
            return GPU_CHECKS[name](self.tools, self.plan.node, self.plan.limits)

    def _ping(self, status: Status) -> Result:
        own = self.plan.node
        try:
            peers = by_node(self.nodes.peers())
            wanted = [one for one in status.pingnodes if one != ALL]
            wanted += self.nodes.of_job(status.job) if status.job != NONE else ()
            wanted += self.nodes.labelled(status.nodelabel) if status.nodelabel != NONE else ()
        except LookupFailedError as error:
            return Result("ping", UNKNOWN, str(error))
        nobody_named = not wanted and status.job == status.nodelabel == NONE
        if nobody_named or (wanted and set(wanted) == {own}):  # alone in the question: then everybody is the other side
            there = [one for one in peers.values() if one.host]
            targets = node_checks.targets_of(node_checks.choose_peers(there, own, self.plan.ping_peers, self._round))
        else:
            targets = node_checks.named_targets(wanted, peers, own)
        announced = tuple(peers[own].addresses) if own in peers else ()
        return node_checks.ping(self.tools, own, targets, announced)

    def round(self) -> Report:
        """The periodic checks, once."""
        report = self.report(Status())
        self._round += 1
        return report

    def busy(self) -> str:
        """Who uses this node's GPUs, or why nobody knows; "": nobody."""
        if self._api is not None:
            try:
                pods = gpus_asked(pods_on(self._api, self.plan.node))
            except ApiError as error:
                return f"it is not known whether pods use its GPUs: {error}"
            if pods:
                return f"GPUs are busy: {', '.join(pods[:4])}"
        parsed = self.tools.call(Call(0, probe="gpu-devices"))
        users = [one for one in parsed.readings if one.quantity == "gpu_foreign_processes"]
        if any(one.value for one in users):
            return f"GPUs are busy: {users[0].line}"
        if not users and self._api is None:
            return f"it is not known whether its GPUs are used: {parsed.unknown or 'no tool tells'}"
        return ""

    def deep(self) -> Result:
        """The deep test, where the node is idle and can be held; once for all who ask."""
        return self._once.do("deep", self._deep)

    def _deep(self) -> Result:
        with self._turns.turn(GPUS, DEEP, self.plan.turn_seconds) as other:
            if other:
                return self._no_deep_test(f"{other} is using the GPUs")
            seconds = DEADLINES[self.plan.deep_level] + HOLD_MARGIN_SECONDS
            with node_hold(self._hold, self.plan.node, seconds, self.busy, self._say) as why:
                return self._no_deep_test(why) if why else self._run_deep_test()

    def _no_deep_test(self, why: str) -> Result:
        self._say(f"no deep test: {why}")
        return Result("dcgm", UNKNOWN, why, level=self.plan.deep_level, kept=False).timed(time.time(), 0.0)

    def _run_deep_test(self) -> Result:
        level = self.plan.deep_level
        self.marks.testing(True, self.known.results())
        result = self._timed(
            "dcgm", level, "deep test", lambda: dcgm(self.tools, self.plan.node, level, self.plan.paths)
        )
        self.known.add(result)
        self.marks.testing(False, self.known.results())
        self.marks.update([result], self.known.results())
        return result

    def begin(self, periodic_seconds: float, deep_seconds: float) -> List[threading.Thread]:
        """Start the rounds and the deep tests; 0: none of them. What a killed daemon held is given back first."""
        works: List[Tuple[Callable[[], object], float]] = [(self.round, periodic_seconds), (self.deep, deep_seconds)]
        threads = [
            threading.Thread(target=self._again, args=(work, seconds), daemon=True)
            for work, seconds in works
            if seconds
        ]
        for thread in threads:
            thread.start()
        return threads

    def _again(self, work: Callable[[], object], seconds: float) -> None:
        # Nodes that were started together do not stay together: each waits up to a tenth longer, by its name.
        pause = seconds * (1.0 + zlib.crc32(self.plan.node.encode()) % 100 / 1000.0)
        while not self._ended.is_set():
            try:
                work()
            except Exception as error:  # the next one is due whatever became of this one
                self._say(f"a round crashed: {type(error).__name__}: {error}")
            self._ended.wait(pause)

    def end(self) -> None:
        """No more rounds; what a deep test holds now is given back, since nobody will wait for its end."""
        self._ended.set()
        if self._turns.holder(GPUS) == DEEP:
            left = self._hold.release(self.plan.node, owner_of(self.plan.node))
            if left:
                self._say(f"the hold of {self.plan.node} is left over: {left}")
