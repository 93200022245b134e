"""Incidents as rows of tables tell them: what ended, what pods and nodes look like, what was printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.builders.nodes import a_node
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod
from workflows.wire import GateReport, RankEnd, ResumeChoice, Termination

NOW = 1000.0
TRACEBACK = ("Traceback (most recent call last):", '  File "/work/train.py", line 7, in step')


@dataclass(frozen=True)
class End:
    """The record of a launcher whose only rank has ended."""

    node: str
    rank: int
    code: int | None = None
    signal: int | None = None
    at: float = 990.0
    requested: bool = False
    oom_killed: bool = False
    raised: str = ""
    """The exception that ended it; a traceback stands before it."""
    lines: tuple[str, ...] = ()
    reason: str = "rank-failed"
    last_step: int = 40

    def record(self) -> Termination:
        """As the launcher writes it."""
        said = [*TRACEBACK, self.raised] if self.raised else list(self.lines)
        how = (self.code, self.signal, self.requested, self.last_step, said)
        end = RankEnd(self.rank, 0, self.at, *how, oom_killed=self.oom_killed)
        return Termination("demo", 1, "trainer", self.node, f"pod-{self.node}", self.reason, [end])


@dataclass(frozen=True)
class Known:
    """What a launcher knows of why its pod ended; its ranks ended well, or were never started."""

    node: str
    cause: str
    detail: str = ""
    reason: str = "launcher-error"

    def record(self) -> Termination:
        """As the launcher writes it."""
        about = ("demo", 1, "trainer", self.node, f"pod-{self.node}", self.reason)
        return Termination(*about, ranks=[], detail=self.detail, cause=self.cause)


@dataclass(frozen=True)
class Printed:
    """A line of a rank, or of a node's kernel."""

    text: str
    rank: int | None = None
    kernel: str = ""
    """The node whose kernel printed it."""
    at: float | None = None

    def line(self) -> LogLine:
        """As it is gathered."""
        if self.kernel:
            return LogLine(self.text, "kernel", None, self.kernel, self.at)
        return LogLine(self.text, "rank", self.rank, f"node-{self.rank}", self.at)


@dataclass(frozen=True)
class Seen:
    """What is known of an incident; what is left out of pods is a trainer of one rank that has failed."""

    signal: Signal = Signal.POD_FAILED
    detail: str = ""
    suspended: str = ""
    ends: tuple[End, ...] = ()
    known: tuple[Known, ...] = ()
    steps: int = 0
    last_step: int | None = None
    pods: tuple[dict[str, Any], ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    lines: tuple[Printed, ...] = ()
    failed_checks: tuple[str, ...] = ()
    """Of the gate on node-1."""
    choice: dict[str, str] = field(default_factory=dict[str, str])
    """Verdict, why and owner of the checkpoints, and the path to resume from."""
    silent_nodes: tuple[str, ...] = ()
    unreached_nodes: tuple[str, ...] = ()
    answering_nodes: tuple[str, ...] = ()
    first_nan_step: int | None = None

    def evidence(self) -> Evidence:
        """As it is diagnosed."""
        return Evidence(
            self.signal,
            "demo",
            1,
            NOW,
            detail=self.detail,
            suspended=self.suspended,
            terminations=tuple(end.record() for end in (*self.ends, *self.known)),
            steps=self.steps,
            last_step=self.last_step,
            pods=tuple(_pod(**facts) for facts in self.pods),
            nodes=tuple(a_node(**facts) for facts in self.nodes),
            lines=tuple(printed.line() for printed in self.lines),
            gate=tuple(_refused(check) for check in self.failed_checks),
            choice=_choice(**self.choice) if self.choice else None,
            silent_nodes=self.silent_nodes,
            unreached_nodes=self.unreached_nodes,
            answering_nodes=self.answering_nodes,
            first_nan_step=self.first_nan_step,
        )


def _pod(node: str, rank: int, phase: str = "Failed", **more: Any) -> Pod:
    return Pod(f"pod-{node}", "trainer", rank, node, phase, ranks=(rank,), **more)


def _refused(check: str) -> GateReport:
    return GateReport("node-1", "fail", [{"check": check, "verdict": "fail", "evidence": "7 of 8"}])


def _choice(verdict: str, why: str = "", owner: str = "", resume: str = "") -> ResumeChoice:
    return ResumeChoice(resume, None, [], verdict, why, owner=owner)
