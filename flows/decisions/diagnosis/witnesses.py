"""Witnesses other than lines: signals, nodes, pods, exit codes, the gate, the checkpoint step, numbers.

Each is a pure function from the evidence to clues; what an outcome means stands in tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from signal import SIGTERM

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.exits import Exit
from flows.decisions.diagnosis.losses import lost, lost_nodes, not_ready, unreached
from flows.decisions.diagnosis.rules.host import CRASHED
from flows.decisions.policy import POLICY
from profiles.vocabulary import FaultClass
from workflows.model.attempt import Evidence, Signal
from workflows.model.cluster import Pod
from workflows.wire import RankEnd, Termination

Witness = Callable[[Evidence], Iterator[Clue]]

F = FaultClass

SIGNALS: dict[Signal, tuple[FaultClass, float]] = {
    Signal.PREEMPTION_NOTICE: (F.PREEMPTED, 0.9),
    Signal.NODE_CORDONED: (F.PREEMPTED, 0.9),
    Signal.UNSCHEDULABLE: (F.SCHEDULING, 0.9),
    Signal.IMAGE: (F.CONFIG, 0.92),
    Signal.SUBMIT_REFUSED: (F.CONFIG, 0.75),
    Signal.STARTED_OVER: (F.STARTED_OVER, 0.97),
    Signal.NUMERIC: (F.NUMERIC, 0.93),
    Signal.HANG: (F.HANG, 0.85),
    Signal.STRAGGLER: (F.STRAGGLER, 0.9),
    Signal.OBSERVER_AWAY: (F.CONTROL_PLANE, 0.9),
}
"""What a signal says by itself."""

POD_REASONS: dict[str, tuple[FaultClass, float]] = {
    "OOMKilled": (F.HOST_OOM, 0.95),
    "NodeLost": (F.NODE_LOST, 0.95),
    "NodeShutdown": (F.PREEMPTED, 0.85),
    "Terminated": (F.PREEMPTED, 0.6),
    "Shutdown": (F.PREEMPTED, 0.8),
    "NodeAffinity": (F.SCHEDULING, 0.7),
    "UnexpectedAdmissionError": (F.GPU_DRIVER, 0.75),
    "SupervisorLost": (F.PROCESS_KILLED, 0.75),
    "ErrImagePull": (F.CONFIG, 0.92),
    "ImagePullBackOff": (F.CONFIG, 0.92),
    "ErrImageNeverPull": (F.CONFIG, 0.92),
    "InvalidImageName": (F.CONFIG, 0.95),
    "CreateContainerConfigError": (F.CONFIG, 0.9),
    "CreateContainerError": (F.CONFIG, 0.8),
    "RunContainerError": (F.CONFIG, 0.8),
    "StartError": (F.CONFIG, 0.88),
    "ContainerCannotRun": (F.CONFIG, 0.88),
}
"""Reasons of pods and containers. `Evicted` depends on its message (the rules of kubelet's words)."""

EXITS: dict[int, tuple[FaultClass, float]] = {
    2: (F.CONFIG, 0.35),
    126: (F.CONFIG, 0.85),
    127: (F.CONFIG, 0.88),
}
"""Exit codes that say something. 1 says nothing; 128 + n is signal n."""

SIGNAL_NUMBERS: dict[int, tuple[FaultClass, float, str]] = {
    4: (F.CONFIG, 0.4, "illegal instruction: an image built for another processor"),
    6: (F.UNKNOWN, 0.3, "aborted"),
    7: (F.HOST_OOM, 0.5, "bus error: shared memory is full, or storage vanished under a mapped file"),
    8: (F.USER_CODE, 0.5, "arithmetic error"),
    9: (F.PROCESS_KILLED, 0.75, "killed from outside; nothing says that memory was the reason"),
    11: (F.USER_CODE, 0.4, "segmentation fault"),
    15: (F.PROCESS_KILLED, 0.55, "terminated from outside without a notice"),
    24: (F.CONFIG, 0.6, "CPU time limit"),
    25: (F.STORAGE, 0.6, "file size limit"),
}
"""Signals that ended a process that had not been asked to end."""

UNTOLD_CRASH = 0.5
"""A launcher of somebody else's reports a crash: where it happened would stand in lines beside it."""
UNTOLD_CODE = 0.2
"""An exit code of which nobody knows what it means: it stands with the incident, and decides nothing."""
UNTOLD_MEMORY = 0.3
"""That the kernel's OOM killer did it, of a SIGKILL of which nothing says who sent it. Of 33 killed processes of the
corpus that nothing explained, experts thought of memory in 27, and of memory first in none: an alternative."""

LAUNCHER_REASONS: dict[str, tuple[FaultClass, float]] = {
    "signalled": (F.PREEMPTED, 0.6),
    "coordinator-lost": (F.RENDEZVOUS, 0.6),
}
"""Why a launcher ended whose ranks had nothing wrong with them. `signalled`: SIGTERM came from outside, not from us."""

LAUNCHER_CAUSES: dict[str, tuple[FaultClass, float]] = {
    "arguments": (F.CONFIG, 0.95),
    "address": (F.CONFIG, 0.9),
    "coordinator-away": (F.RENDEZVOUS, 0.8),
    "coordinator-refused": (F.RENDEZVOUS, 0.6),
    "gang-incomplete": (F.RENDEZVOUS, 0.8),
    "folder": (F.CONFIG, 0.95),
    "storage": (F.STORAGE, 0.9),
    "checkpoint-changed": (F.CHECKPOINT_CORRUPT, 0.9),
    "no-steps": (F.CONFIG, 0.9),
    "ended-early": (F.CONFIG, 0.7),
    "process-stuck": (F.HANG, 0.7),
    "memory": (F.HOST_OOM, 0.8),
    "system-refused": (F.UNKNOWN, 0.3),
}
"""Class of each cause that a launcher names (`workflows.wire.LauncherCause`). A try more helps none of class `config`,
but for `ended-early`: a program that trains for so long and ends goes on from its checkpoint, and one that ends at the
same step again does not (`flows.decisions.policy.BY_RULE`)."""

LAUNCHER_ADVICE: dict[str, str] = {
    "folder": "put a folder there, or name another one in the profile",
    "no-steps": "read what the program printed: correct its arguments or its data, or `progress` of the profile where "
    "it did train and its lines were not read as steps",
    "ended-early": "lower `steps` of the profile where the program is meant to end there",
}
"""What a person can do, where the class alone does not say it."""

GATE_CHECKS: dict[str, tuple[FaultClass, float]] = {
    "gpu": (F.GPU_HARDWARE, 0.85),
    "storage": (F.STORAGE, 0.85),
    "disk": (F.STORAGE, 0.85),
    "node": (F.UNKNOWN, 0.4),
    "memory": (F.HOST_OOM, 0.6),
    "clock": (F.CONTROL_PLANE, 0.4),
    "network": (F.FABRIC, 0.7),
    "fabric": (F.FABRIC, 0.8),
    "nic": (F.FABRIC, 0.8),
}
"""What a failed check of the gate or of an examination means, by a word in its name."""

BY_SIGKILL = frozenset({
    "signal-9", "killed-by-shell", "killed-exit-code", "killed-signal", "ended-minus-nine", "kubernetes-exit-137",
})  # fmt: skip
"""Rules and witnesses of ends by a signal that nobody can refuse."""
MEMORY_UNTOLD = "memory-untold"
"""The alternative to every kill without a reason."""

_LAGS = re.compile(r"(?:outside of it|elsewhere): rank (?P<rank>\d{1,7}) on (?P<node>\S{1,253}) in (?!.* and \d+ more)")
_AWAITED = re.compile(r"all wait for rank (?P<rank>\d{1,7}) on (?P<node>\S{1,253}), which ")
"""The same where more than stacks says so (`AwaitedRank` in `workflows.programs.coordinator.hangs`)."""
_AGAIN = re.compile(r"it is the second time on (?P<node>\S{1,253})$")
"""How a coordinator says whom a hang is owed to."""
_SLOW = re.compile(r"rank \d{1,7} on (?P<node>\S{1,253}) takes ")
"""How `StragglerMove.words` (`flows.decisions.recovery.straggler`) names the slow rank."""

_ELSEWHERE = (
    "begin a run of another name; with `checkpoint.directory` set to the checkpoints there it goes on from them"
)


def testimony(evidence: Evidence) -> tuple[Clue, ...]:
    """Everything that is known beside lines, as clues."""
    return tuple(clue for witness in WITNESSES for clue in witness(evidence))


def _signals(evidence: Evidence) -> Iterator[Clue]:
    meaning = SIGNALS.get(evidence.signal)
    if meaning is not None:
        clue = Clue(meaning[0], meaning[1], evidence.detail or f"signal {evidence.signal}", f"signal-{evidence.signal}")
        yield _with_whom(clue) if evidence.signal is Signal.HANG else _with_node(clue)


def _with_whom(hang: Clue) -> Clue:
    """The clue with the one rank for whom the others wait, by their stacks; with its node, where it hung before."""
    lags, again = _AWAITED.search(hang.text) or _LAGS.search(hang.text), _AGAIN.search(hang.text)
    if again is not None:
        return replace(hang, blames="node", node=again["node"])
    return hang if lags is None else replace(hang, blames="rank", node=lags["node"], rank=int(lags["rank"]))


def _with_node(clue: Clue) -> Clue:
    """The clue with the node that a slow rank is on."""
    slow = _SLOW.match(clue.text) if clue.fault_class is F.STRAGGLER else None
    return clue if slow is None else replace(clue, blames="node", node=slow["node"])


def _pods(evidence: Evidence) -> Iterator[Clue]:
    gone = lost_nodes(evidence)
    failed = {record.pod for record in evidence.terminations if record.first_failing_rank is not None}
    ends = _end_of_gang(evidence)
    for pod in evidence.pods:
        if pod.unschedulable:
            yield Clue(F.SCHEDULING, 0.9, f"{pod.name}: {pod.unschedulable}", "pod-unschedulable")
        if pod.node in gone:
            continue
        yield from _pod(pod, pod.name in failed or (pod.deleted_at is not None and pod.deleted_at > ends))


def _end_of_gang(evidence: Evidence) -> float:
    """From when on JobSet deletes what is left of the gang, because a rank or pod failed unasked; else infinity.

    Times of deletions have whole seconds, so one within the second of the failure came after it.
    """
    ranks = [end for record in evidence.terminations for end in record.ranks if not end.requested]
    failures = [end.at for end in ranks if _failed(end.exit_code, end.signal)]
    pods = [pod for pod in evidence.pods if not pod.deleted and not pod.disrupted]
    failures += [pod.finished_at for pod in pods if pod.finished_at is not None and _failed(pod.exit_code, pod.signal)]
    return min(failures, default=float("inf")) - 1.0


def _failed(exit_code: int | None, signal: int | None) -> bool:
    """Whether a process ended wrongly without being asked to end."""
    return signal not in (None, SIGTERM) or exit_code not in (None, 0, 128 + SIGTERM)


def _suspended(evidence: Evidence) -> Iterator[Clue]:
    """Another gang that takes this one's place ends its pods; their ends say nothing more."""
    if evidence.suspended:
        yield Clue(F.PREEMPTED, 0.93, evidence.suspended, "gang-suspended",
                   supersedes=("process_killed", "collective_timeout", "unknown"))  # fmt: skip


def _pod(pod: Pod, failed: bool) -> Iterator[Clue]:
    """Why it ended; where it or its gang had `failed` unasked before, its deletion is no reason but a consequence."""
    ended_wrongly = pod.phase in ("Failed", "Gone") or pod.exit_code not in (None, 0)
    if pod.disrupted:
        text = f"{pod.name}: must leave {pod.node} ({pod.reason or 'DisruptionTarget'})"
        yield Clue(F.PREEMPTED, 0.93, text, "pod-disrupted", node=pod.node,
                   supersedes=("process_killed", "collective_timeout", "unknown"))  # fmt: skip
    elif failed:
        pass
    elif pod.deleted and ended_wrongly:
        yield Clue(F.PREEMPTED, 0.6, f"{pod.name}: deleted from outside", "pod-deleted", node=pod.node)
    elif pod.phase == "Gone":
        yield Clue(F.PREEMPTED, 0.5, f"{pod.name}: its object is gone", "pod-gone", node=pod.node)
    meaning = POD_REASONS.get(pod.reason)
    if meaning is not None:
        kind, weight = meaning
        beats = ("process_killed", "signal-9") if kind is F.HOST_OOM else ()
        yield Clue(kind, weight, f"{pod.name}: {pod.reason} {pod.message}".strip(), f"pod-{pod.reason}", node=pod.node,
                   at=pod.finished_at, supersedes=beats)  # fmt: skip


def _exits(evidence: Evidence) -> Iterator[Clue]:
    gone = lost_nodes(evidence)
    # A launcher that was told to stop before its ranks began ends by 143 as well: that is no signal from outside.
    recorded = {item.pod for item in evidence.terminations if item.ranks or item.cause or item.reason == "told-to-stop"}
    for record in evidence.terminations:
        if record.node not in gone:
            yield from (clue for end in record.ranks for clue in _rank_end(record, end))
    for pod in evidence.pods:
        leaving = pod.deleted or pod.disrupted
        if pod.name in recorded or pod.node in gone or leaving or pod.reason in ("OOMKilled", "NodeLost"):
            continue
        yield from _exit(
            pod.exit_code, pod.signal, Clue(F.UNKNOWN, 0.0, pod.name, "", node=pod.node, at=pod.finished_at)
        )


def _rank_end(record: Termination, end: RankEnd) -> Iterator[Clue]:
    if end.requested:
        return
    who = f"rank {end.rank}" + (f" on {record.node}" if record.node else "")
    about = Clue(F.UNKNOWN, 0.0, who, "", "rank", record.node, end.rank, end.at)
    if end.oom_killed:
        yield Clue(F.HOST_OOM, 0.95, f"{about.text}: killed because memory ran out", "exit-oom", "rank", record.node,
                   end.rank, end.at, supersedes=("process_killed", "signal-9"))  # fmt: skip
        return
    told = tuple(_exit(end.exit_code, end.signal, about))
    yield from told
    if not told and end.exit_code:
        text = f"{about.text}: exit code {end.exit_code}"
        yield replace(about, weight=UNTOLD_CODE, text=text, rule="exit-code", echo=True)


def exit_clue(end: Exit) -> Clue:
    """What an end means that a launcher reported in a log; SIGTERM ends ranks that were asked to end."""
    who = "a process" if end.rank is None else f"{'local rank' if end.local else 'rank'} {end.rank}"
    who += f" on {end.node}" if end.node else ""
    about = Clue(F.UNKNOWN, 0.2, f"{who} ended with code {end.code}", "exit-code", "rank", end.node, end.rank, end.at,
                 echo=True, file=end.line.file, line=end.line.line)  # fmt: skip
    if end.signal == 11:
        about = replace(about, text=f"{who} ended by signal 11, without saying where", rule="signal-11", advice=CRASHED)
        return replace(about, fault_class=F.USER_CODE, weight=UNTOLD_CRASH, echo=False)
    if 15 in (end.signal, (end.code or 0) - 128):
        return replace(about, text=f"{who} ended by signal 15: it was asked to end", rule="signal-15")
    return next(_exit(end.code, end.signal, replace(about, text=who, echo=False)), about)


def memory_untold(clues: Sequence[Clue]) -> tuple[Clue, ...]:
    """The other reason of a kill that nothing explains: who kills by SIGKILL without a word is often the kernel."""
    kills = [clue for clue in clues if clue.rule in BY_SIGKILL and clue.original]
    if not kills:
        return ()
    told = max(kills, key=lambda clue: clue.weight)
    text = f"{told.text}; nothing says who sent it: memory that ran out is a usual reason"
    return (replace(told, fault_class=F.HOST_OOM, weight=UNTOLD_MEMORY, text=text, rule=MEMORY_UNTOLD, advice="",
                    supersedes=()),)  # fmt: skip


def _exit(code: int | None, signal: int | None, about: Clue) -> Iterator[Clue]:
    if signal is None and code is not None and code > 128:
        signal = code - 128
    if signal is not None and signal in SIGNAL_NUMBERS:
        kind, weight, meaning = SIGNAL_NUMBERS[signal]
        text, rule = f"{about.text}: ended by signal {signal} ({meaning})", f"signal-{signal}"
    elif code in EXITS:
        kind, weight = EXITS[code]
        text, rule = f"{about.text}: exit code {code}", f"exit-{code}"
    else:
        return
    blames = "code" if POLICY[kind].exception_blames_code else about.blames
    yield replace(about, fault_class=kind, weight=weight, text=text, rule=rule, blames=blames)


def _requested_ends(evidence: Evidence) -> Iterator[Clue]:
    """No rank failed, and yet the gang ended: its end was requested, which a drained node explains."""
    ends = [end for record in evidence.terminations for end in record.ranks]
    if any(not end.requested and (end.exit_code or end.signal is not None) for end in ends):
        return
    requested = any(end.requested for end in ends) or any(pod.exit_code == 143 for pod in evidence.pods)
    for record in evidence.terminations:
        meaning = LAUNCHER_REASONS.get(record.reason)
        if meaning is not None:
            yield Clue(meaning[0], meaning[1], f"{record.pod}: {record.reason} {record.detail}".strip(),
                       f"launcher-{record.reason}", node=record.node)  # fmt: skip
    for node in evidence.nodes:
        if node.cordoned and requested:
            text = f"{node.name} is cordoned, and every rank ended because it was asked to"
            yield Clue(F.PREEMPTED, 0.85, text, "node-cordoned", node=node.name)


def _launcher_causes(evidence: Evidence) -> Iterator[Clue]:
    """What launchers know themselves, and how the flow saw ranks end that no launcher could judge."""
    started = {record.role for record in evidence.terminations if record.ranks}
    for record in evidence.terminations:
        if record.cause in LAUNCHER_CAUSES:
            text = f"{record.role} on {record.node}: {record.detail}"
            # Where others have started on the same storage, the fault is this node's.
            alone = record.cause == "folder" and record.role in started
            yield _here(record, text) if alone else _cause(record.cause, text, record.node)
    if evidence.signal is Signal.ENDED_EARLY:
        yield _cause("no-steps" if evidence.last_step is None else "ended-early", evidence.detail, "")


def _cause(cause: str, text: str, node: str) -> Clue:
    kind, weight = LAUNCHER_CAUSES[cause]
    blames = "node" if kind is F.HANG else "code" if POLICY[kind].exception_blames_code else "nobody"
    return Clue(kind, weight, text, f"launcher-{cause}", blames, node, supersedes=("unknown",),
                advice=LAUNCHER_ADVICE.get(cause, ""))  # fmt: skip


def _here(record: Termination, text: str) -> Clue:
    return Clue(F.STORAGE, 0.85, f"{text}, though other pods could", "launcher-folder-here", "node", record.node)


def _left_early(evidence: Evidence) -> Iterator[Clue]:
    """A rank ended well before the planned end, and then others failed that needed it: what they print is an echo."""
    trains = {pod.name for pod in evidence.pods if pod.ranks}
    ends = [(record.node, end) for record in evidence.terminations if record.pod in trains for end in record.ranks]
    own = [(node, end) for node, end in ends if not end.requested]
    failed = min((end for _, end in own if end.exit_code or end.signal is not None), key=_when, default=None)
    left = min(((node, end) for node, end in own if end.exit_code == 0), key=lambda item: _when(item[1]), default=None)
    if failed is None or left is None or left[1].at > failed.at or not evidence.steps:
        return
    node, end = left
    if (end.last_step or evidence.last_step or 0) >= evidence.steps:
        return
    after = "without a step" if end.last_step is None else f"after step {end.last_step} of {evidence.steps}"
    where = f" on {node}" if node else ""
    text = f"rank {end.rank}{where} had ended with exit code 0 {after}, and rank {failed.rank}, which needed it, failed"
    yield Clue(F.COLLECTIVE_TIMEOUT, 0.6, text, "rank-left-early", "rank", node, end.rank, end.at,
               supersedes=("unknown", "fabric", "rendezvous"))  # fmt: skip


def _when(end: RankEnd) -> tuple[float, int]:
    return (end.at, end.rank)


def _gate(evidence: Evidence) -> Iterator[Clue]:
    reports = (*(("gate", item) for item in evidence.gate), *(("examination", item) for item in evidence.examined))
    for looked, report in reports:
        for check in report.checks:
            if check.get("verdict") != "fail":
                continue
            name = str(check.get("check", ""))
            kind, weight = next((value for word, value in GATE_CHECKS.items() if word in name), (F.UNKNOWN, 0.4))
            evidence_text = check.get("evidence") or f"measured {check.get('measured')}, limit {check.get('limit')}"
            text = f"{looked} on {report.node}: {name} failed: {evidence_text}"
            yield Clue(kind, weight, text, f"{looked}-{name}", "node", report.node)


def _checkpoint(evidence: Evidence) -> Iterator[Clue]:
    choice = evidence.choice
    if choice is not None and choice.owner:
        yield Clue(F.CONFIG, 0.98, choice.why, "folder-of-another-ledger", advice=_ELSEWHERE)
    elif choice is not None and choice.verdict == "fail":
        yield Clue(F.CHECKPOINT_CORRUPT, 0.95, choice.why, "checkpoint-choice", supersedes=("config", "unknown"))
    elif choice is not None and choice.verdict == "unknown":
        yield Clue(F.STORAGE, 0.8, choice.why, "checkpoint-unreadable", supersedes=("config", "unknown"))
    elif evidence.signal is Signal.CHECKPOINT_UNUSABLE:
        yield Clue(F.CHECKPOINT_CORRUPT, 0.8, evidence.detail or "no usable checkpoint", "checkpoint-unusable")


def _numbers(evidence: Evidence) -> Iterator[Clue]:
    if evidence.first_nan_step is not None:
        text = f"the loss is not a number since step {evidence.first_nan_step}"
        yield Clue(F.NUMERIC, 0.9, text, "first-nan-step", supersedes=("user_code", "unknown"))


WITNESSES: tuple[Witness, ...] = (
    _signals,
    lost,
    unreached,
    not_ready,
    _suspended,
    _pods,
    _exits,
    _requested_ends,
    _launcher_causes,
    _left_early,
    _gate,
    _checkpoint,
    _numbers,
)
