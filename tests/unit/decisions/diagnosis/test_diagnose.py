"""Diagnosis: tables of incidents, and what must hold for all of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.matching import RULES
from flows.decisions.diagnosis.witnesses import GATE_CHECKS, LAUNCHER_CAUSES
from profiles.vocabulary import FaultClass
from tests.support.builders.incidents import NOW, TRACEBACK, Known, Seen
from tests.support.builders.nodes import a_node
from tests.support.cases.rows import rows
from workflows.model.attempt import Evidence, LogLine, PastIncident, Signal
from workflows.model.cluster import Pod
from workflows.programs.probes.gate import CHECKS
from workflows.programs.runtime.last_words import fingerprint
from workflows.wire import GateReport, LauncherCause, RankEnd, ResumeChoice, Termination

F = FaultClass


def incident(signal: Signal = Signal.POD_FAILED, **facts: object) -> Evidence:
    return Evidence(signal, "demo", 1, NOW, **facts)  # type: ignore[arg-type]


def end(rank: int, code: int | None = None, signal: int | None = None, at: float = 990.0, **more: object) -> RankEnd:
    lines = list(more.pop("lines", ()))  # type: ignore[call-overload]
    step = more.pop("last_step", 40)
    return RankEnd(rank, 0, at, code, signal, last_lines=lines, last_step=step, **more)  # type: ignore[arg-type]


def left(node: str, *ends: RankEnd) -> Termination:
    return Termination("demo", 1, "trainer", node, f"pod-{node}", "rank-failed", list(ends))


def pod(node: str, rank: int, phase: str = "Failed", **more: object) -> Pod:
    return Pod(f"pod-{node}", "trainer", rank, node, phase, ranks=(rank,), **more)  # type: ignore[arg-type]


def raised(*words: str) -> tuple[str, ...]:
    return (*TRACEBACK, *words)


def rank_line(rank: int, text: str, at: float | None = None) -> LogLine:
    return LogLine(text, "rank", rank, f"node-{rank}", at)


def kernel(node: str, text: str, at: float | None = None) -> LogLine:
    return LogLine(text, "kernel", None, node, at)


def looked(verdict: str, why: str) -> ResumeChoice:
    return ResumeChoice("", None, [], verdict, why)


XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, Timeout(ms)=600000) ran"


@rows("diagnosis/incidents")
def test_what_it_is_and_who_is_to_blame(
    wanted: F, seen: Seen, culprits: tuple[tuple[str, int | None], ...] = (), confidence: float = 0.0
) -> None:
    found = diagnose(seen.evidence())
    assert (found.fault_class, found.culprits) == (wanted, culprits)
    assert confidence <= found.confidence <= 1
    assert found.confidence + sum(share for _, share in found.alternatives) <= 1.001
    assert found.why


def test_every_cause_that_a_launcher_names_and_every_check_of_the_gate_has_a_class() -> None:
    assert set(LAUNCHER_CAUSES) == {cause for cause in get_args(LauncherCause) if cause}
    assert [check for check in CHECKS if not any(word in check for word in GATE_CHECKS)] == []


def test_an_end_at_the_same_step_again_is_known_again_though_pods_have_other_names() -> None:
    ends = [Known(f"node-{n}", "ended-early", "exit 0 after step 12, before the planned last step 30") for n in (0, 1)]
    found = [diagnose(Seen(known=(end,), last_step=12).evidence()) for end in ends]
    assert found[0].fingerprint == found[1].fingerprint != ""
    assert {(one.rule, one.step) for one in found} == {("launcher-ended-early", 12)}


def test_of_chained_exceptions_the_innermost_is_the_cause() -> None:
    lines = (
        *raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"),
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *raised("RuntimeError: training step failed"),
    )
    found = diagnose(incident(terminations=(left("node-1", end(1, 1, lines=lines)),)))
    assert found.fault_class is F.CONFIG
    assert F.USER_CODE in dict(found.alternatives)


def test_an_exception_that_a_killed_rank_had_survived_is_not_its_cause() -> None:
    lines = raised("ValueError: retrying with a smaller shard")
    found = diagnose(incident(terminations=(left("node-1", end(1, signal=9, lines=lines)),)))
    assert found.fault_class is F.PROCESS_KILLED


def test_a_rank_that_was_killed_while_it_went_down_with_its_own_exception_is_the_cause() -> None:
    """Its peer saw the lost connection first, and the gang was told to end before the interpreter was gone."""
    own = raised("IndexError: list index out of range")
    peer = end(0, 1, at=990.0, lines=raised("EOFError: rank 1 closed its connection"), fingerprint="EOFError")
    late = end(1, signal=9, at=990.01, lines=own, requested=True, fingerprint="signal 9")
    found = diagnose(incident(terminations=(left("node-0", peer), left("node-1", late))))
    assert (found.fault_class, found.first_failing_rank, found.victims) == (F.USER_CODE, 1, (0,))
    alone = end(1, 1, lines=own, fingerprint=fingerprint(own, 1, None))
    assert found.fingerprint == diagnose(incident(terminations=(left("node-1", alone),))).fingerprint != ""


def test_a_rank_that_was_killed_while_it_named_the_cause_is_the_cause() -> None:
    full = "rank 0: [Errno 28] No space left on device: '/ckpt/.step-15.unfinished/shard-0.npz'"
    missing = "rank 1: [Errno 2] No such file or directory: '/ckpt/.step-15.unfinished/shard-1.npz'"
    ends = (
        end(0, signal=9, at=990.01, requested=True, lines=("step 15/60 | loss 3.1", full)),
        end(1, 1, at=990.0, lines=(missing,)),
    )
    seen = diagnose(incident(terminations=(left("node-0", ends[0]), left("node-1", ends[1]))))
    assert seen.fault_class is F.STORAGE, seen
    echo = replace(ends[0], last_lines=["RuntimeError: Connection reset by peer"])
    other = diagnose(incident(terminations=(left("node-0", echo), left("node-1", ends[1]))))
    assert other.fault_class is not F.STORAGE
    assert 0 in other.victims


def test_a_rank_that_was_killed_after_an_exception_it_had_handled_is_a_victim() -> None:
    lines = (*raised("IndexError: list index out of range"), "skips the sample", "step 41 | loss 2.3")
    late = end(1, signal=9, at=990.01, lines=lines, requested=True)
    found = diagnose(incident(terminations=(left("node-0", end(0, signal=9)), left("node-1", late))))
    assert (found.fault_class, found.victims) == (F.PROCESS_KILLED, (1,))


def test_victims_are_named_and_the_culprit_is_not_among_them() -> None:
    peer = end(0, 1, at=990.01, lines=raised("ConnectionResetError: [Errno 104] Connection reset by peer"))
    found = diagnose(incident(terminations=(left("node-0", peer), left("node-1", end(1, signal=9)))))
    assert (found.victims, found.first_failing_rank) == ((0,), 1)


def test_the_fingerprint_of_the_first_failing_rank_is_the_incident_s() -> None:
    ends = (
        end(0, 1, at=991, fingerprint="late"),
        end(1, 1, at=990, fingerprint="IndexError@train.py:step", last_step=44),
    )
    found = diagnose(incident(terminations=(left("node-1", *ends),)))
    assert (found.fingerprint, found.step) == ("IndexError@train.py:step", 44)


def test_a_rank_that_tells_no_steps_fails_after_those_of_its_gang() -> None:
    silent = left("node-1", end(1, 1, at=990, fingerprint="DemoFaultError", last_step=None))
    told = replace(left("node-0", end(0, 1, at=991, last_step=None)), last_step=44)
    assert diagnose(incident(terminations=(silent, told), last_step=42)).step == 44
    assert diagnose(incident(terminations=(silent,), last_step=42)).step == 42
    assert diagnose(incident(terminations=(silent,), last_step=None, resume_step=40)).step == 40


@pytest.mark.parametrize(("step", "same"), [(18, True), (20, True), (19, False), (None, False)])
def test_an_earlier_failure_is_where_its_attempt_ended_too(step: int | None, same: bool) -> None:
    late = PastIncident("user_code", "x", 18, (), 500.0, "new-attempt", True, 20)
    assert late.failed_at(step) is same
    unknown = replace(late, step=None, last_step=None)
    assert unknown.failed_at(step) is (step is None)


def test_fingerprints_of_two_copies_of_one_failure_are_equal_whatever_the_numbers() -> None:
    def one(node: str, number: int) -> str:
        text = f"{node}: mlx5_core 0000:{number}b:00.0: device's health compromised - reached miss count"
        return diagnose(incident(lines=(kernel(node, text),))).fingerprint

    assert one("node-1", 3) == one("node-7", 9) != ""


def test_a_line_known_from_two_sources_is_one_witness() -> None:
    text = "RuntimeError: CUDA error: unspecified launch failure"
    once = diagnose(incident(terminations=(left("node-1", end(1, 1, lines=(text,))),)))
    lines = (LogLine(text, "rank", 1, "node-1", 990.0, "rank-1.log", 7),)
    twice = diagnose(incident(terminations=(left("node-1", end(1, 1, lines=(text,))),), lines=lines))
    assert (once.fault_class, once.confidence) == (twice.fault_class, twice.confidence)
    assert [(clue.file, clue.line) for clue in twice.evidence if clue.rule == "cuda-launch-failure"] == [
        ("rank-1.log", 7)
    ]


def past(step: int, *nodes: str, fingerprint: str = "exit 1: launch failure") -> PastIncident:
    return PastIncident("gpu_driver", fingerprint, step, nodes, 500.0, "new-attempt", False, step)


def launch_failure(node: str, *history: PastIncident) -> Evidence:
    text = "RuntimeError: CUDA error: unspecified launch failure"
    ended = end(1, 1, lines=(text,), last_step=40, fingerprint="exit 1: launch failure")
    pods = tuple(pod(f"node-{number}", number) for number in range(4))
    return incident(pods=pods, terminations=(left(node, ended),), past=history)


def test_the_same_failure_at_the_same_step_on_other_nodes_is_the_code() -> None:
    alone = diagnose(launch_failure("node-1"))
    assert (alone.fault_class, alone.rule) == (F.USER_CODE, "cuda-launch-failure")
    found = diagnose(launch_failure("node-1", past(40, "node-2")))
    assert found.confidence > alone.confidence
    assert found.fault_class is F.USER_CODE
    assert "other nodes before (node-2)" in found.why


def test_the_same_failure_always_on_one_node_is_that_node() -> None:
    found = diagnose(launch_failure("node-1", past(12, "node-1"), past(31, "node-1")))
    assert (found.fault_class, found.node_suspect, found.culprits) == (F.GPU_DRIVER, True, (("node-1", None),))
    alone = diagnose(launch_failure("node-1"))
    assert (alone.node_suspect, alone.culprits) == (False, (("node-1", 1),))


def test_always_on_the_only_node_says_nothing() -> None:
    evidence = launch_failure("node-1", past(12, "node-1"))
    alone = replace(evidence, pods=evidence.pods[1:2])
    assert not diagnose(alone).node_suspect


def test_the_same_failure_at_another_step_on_another_node_says_nothing() -> None:
    found = diagnose(launch_failure("node-1", past(12, "node-2")))
    assert (found.fault_class, found.node_suspect) == (F.USER_CODE, False)


def test_nodes_that_did_not_pass_the_gate_are_avoided_unless_most_did_not() -> None:
    unknown = GateReport("node-1", "unknown", [{"check": "answers", "verdict": "unknown"}])
    good = tuple(GateReport(f"node-{number}", "pass", []) for number in (2, 3))
    few = diagnose(incident(Signal.GATE_FAILED, gate=(unknown, *good)))
    assert (few.avoid, few.culprits, few.node_suspect) == (("node-1",), (), False)
    bad = tuple(replace(unknown, node=f"node-{number}") for number in (2, 3))
    assert diagnose(incident(Signal.GATE_FAILED, gate=(unknown, *bad))).avoid == ()


def test_draining_nodes_are_avoided_without_blame() -> None:
    pods = (pod("node-1", 1, disrupted=True), pod("node-2", 2, "Running"))
    found = diagnose(incident(Signal.PREEMPTION_NOTICE, pods=pods, nodes=(a_node("node-2", True),)))
    assert (found.avoid, found.culprits, found.node_suspect) == (("node-1",), (), False)


EXAMPLES = [rule.example for rule in RULES]
NODES = ("node-0", "node-1", "node-2")


def _line(text: str, rank: int | None, node: str, at: float | None) -> LogLine:
    return LogLine(text, "kernel" if rank is None else "rank", rank, node, at)


def _end(rank: int, code: int | None, signal: int | None, at: float, requested: bool, oom_killed: bool) -> RankEnd:
    return RankEnd(rank, 0, at, code, signal, requested, 7, oom_killed=oom_killed)


def _pod(node: str, phase: str, reason: str, code: int | None, disrupted: bool) -> Pod:
    return Pod(f"pod-{node}", "trainer", 0, node, phase, reason, exit_code=code, disrupted=disrupted)


def _evidence(
    signal: Signal,
    lines: list[LogLine],
    ends: list[RankEnd],
    pods: list[Pod],
    nodes: dict[str, bool | None],
    silent: list[str],
) -> Evidence:
    ready = tuple(a_node(name, ready) for name, ready in nodes.items())
    terminations = (left("node-1", *ends),) if ends else ()
    facts = Evidence(signal, "demo", 1, NOW, tuple(pods), ready, terminations, lines=tuple(lines))
    return replace(facts, silent_nodes=tuple(silent))


LINES = st.builds(
    _line,
    st.sampled_from(EXAMPLES),
    st.none() | st.integers(0, 5),
    st.sampled_from((*NODES, "")),
    st.none() | st.floats(900, 1000),
)
ENDS = st.builds(
    _end,
    st.integers(0, 5),
    st.none() | st.sampled_from([0, 1, 2, 127, 137, 143]),
    st.none() | st.sampled_from([6, 9, 11, 15]),
    st.floats(900, 1000),
    st.booleans(),
    st.booleans(),
)
PODS = st.builds(
    _pod,
    st.sampled_from(NODES),
    st.sampled_from(["Running", "Failed", "Gone", "Pending"]),
    st.sampled_from(["", "OOMKilled", "NodeLost", "Evicted", "StartError"]),
    st.none() | st.sampled_from([0, 1, 137]),
    st.booleans(),
)
EVIDENCE = st.builds(
    _evidence,
    st.sampled_from(Signal),
    st.lists(LINES, max_size=6),
    st.lists(ENDS, max_size=4),
    st.lists(PODS, max_size=3),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from([True, True, False, None]), max_size=3),
    st.lists(st.sampled_from(NODES), max_size=2, unique=True),
)


def _spoken_of(evidence: Evidence) -> set[str]:
    """Nodes that anything at all is known about beside that they are part of the gang and well."""
    bad = {node.name for node in evidence.nodes if node.ready is not True}
    bad |= {pod.node for pod in evidence.pods if pod.phase != "Running" or pod.reason or pod.disrupted or pod.exit_code}
    bad |= {line.node for line in evidence.lines} | {item.node for item in evidence.terminations}
    return bad | {report.node for report in evidence.gate} | set(evidence.silent_nodes)


def _named_in(evidence: Evidence, culprits: tuple[tuple[str, int | None], ...]) -> set[str]:
    """Nodes that lines name. Only of foreign logs nothing else is known."""
    if evidence.signal is not Signal.LOGS:
        return set()
    return {node for node, _ in culprits if any(node in line.text for line in evidence.lines)}


@settings(max_examples=150, deadline=None)
@given(EVIDENCE)
def test_a_node_without_evidence_is_never_blamed(evidence: Evidence) -> None:
    found = diagnose(evidence)
    assert {node for node, _ in found.culprits if node} <= _spoken_of(evidence) | _named_in(evidence, found.culprits)
    lost = {node for node, rank in found.culprits if rank is None}
    if found.fault_class is F.NODE_LOST and not any(clue.rule != "node-lost" for clue in found.evidence):
        assert all(_proven_lost(evidence, node) for node in lost)


TRAINERS = tuple(
    Pod(f"demo-a1-trainer-0-{n}-x{n}y2z", "trainer", n, f"node-{n}", "Failed", exit_code=1, ranks=(n,)) for n in (0, 1)
)
PEER = "NET/IB : Got completion from peer {}<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)"


@pytest.mark.parametrize(
    ("peer", "culprits"),
    [
        ("demo-a1-trainer-0-1", (("node-1", None),)),
        ("node-1", (("node-1", None),)),
        ("demo-a1-trainer-0-7", ()),
        ("kp-ddp-worker-0", ()),
    ],
)
def test_a_pods_hostname_in_a_line_is_its_node_and_nobody_is_blamed_whom_the_incident_does_not_hold(
    peer: str, culprits: tuple[tuple[str, int | None], ...]
) -> None:
    found = diagnose(incident(pods=TRAINERS, lines=(rank_line(0, PEER.format(peer)),)))
    assert (found.fault_class, found.culprits) == (F.FABRIC, culprits)


def test_a_host_that_only_a_line_names_is_not_blamed() -> None:
    lines = (
        kernel("node-0", "Rank 5 individual GPU perf score 0.51 is below threshold 0.7"),
        kernel("node-0", "kp-ddp-worker-0:3468:3905 [4] NCCL INFO transport/net.cc:1302 -> 6"),
    )
    assert {node for node, _ in diagnose(incident(lines=lines)).culprits} <= {"", "node-0"}


def _proven_lost(evidence: Evidence, node: str) -> bool:
    facts = {item.name: item for item in evidence.nodes}.get(node)
    said = any(pod.node == node and pod.reason == "NodeLost" for pod in evidence.pods)
    gone = [pod for pod in evidence.pods if pod.node == node]
    silent = node in evidence.silent_nodes and bool(gone) and all(pod.phase in ("Gone", "Failed") for pod in gone)
    return said or silent or (facts is not None and facts.ready is not True)


@settings(max_examples=200, deadline=None)
@given(EVIDENCE)
def test_a_diagnosis_is_total_and_deterministic(evidence: Evidence) -> None:
    found = diagnose(evidence)
    assert found == diagnose(evidence)
    assert 0 <= found.confidence <= 1
    assert found.confidence + sum(share for _, share in found.alternatives) <= 1.001 or found.fault_class is F.UNKNOWN
    assert not {rank for _, rank in found.culprits} & set(found.victims)


@settings(max_examples=150, deadline=None)
@given(EVIDENCE, st.randoms(use_true_random=False))
def test_the_order_of_independent_facts_does_not_matter(evidence: Evidence, chance: random.Random) -> None:
    lines, pods, nodes = list(evidence.lines), list(evidence.pods), list(evidence.nodes)
    for values in (lines, pods, nodes):
        chance.shuffle(values)
    found = diagnose(evidence)
    shuffled = diagnose(replace(evidence, lines=tuple(lines), pods=tuple(pods), nodes=tuple(nodes)))
    assert (shuffled.fault_class, shuffled.confidence, shuffled.culprits) == (
        found.fault_class,
        found.confidence,
        found.culprits,
    )


@settings(max_examples=100, deadline=None)
@given(EVIDENCE, st.lists(st.sampled_from([rule.example for rule in RULES if rule.fault_class is F.NONE]), max_size=5))
def test_noise_does_not_change_the_class(evidence: Evidence, noise: list[str]) -> None:
    """Of log files alone: `tests/corpus/test_properties.py`. There a quiet log is healthy, an empty one is not."""
    if evidence.signal is Signal.LOGS:
        evidence = replace(evidence, signal=Signal.POD_FAILED)
    lines = tuple(LogLine(text, "rank", 0, "node-0") for text in noise)
    found, noisy = diagnose(evidence), diagnose(replace(evidence, lines=(*lines, *evidence.lines)))
    assert (noisy.fault_class, noisy.confidence) == (found.fault_class, found.confidence)


def test_records_of_our_launcher_that_come_late_do_not_outlive_an_exception() -> None:
    """Steps are reported in batches: a rank's exception stands in the log before the steps that went before it."""

    def said(number: int, text: str, rank: int | None) -> LogLine:
        return LogLine(text, "launcher" if rank is None else "rank", rank, "node-1", None, "demo-a1-1", number)

    texts = [*raised("IndexError: list index out of range")]
    lines = [said(number, text, 1) for number, text in enumerate(texts, 1)]
    lines += [
        said(10 + step, f'@primus {{"report":"StepSeen","step":{step},"loss":2.1}}', None) for step in range(3, 6)
    ]
    found = diagnose(incident(lines=tuple(lines), terminations=(left("node-1", end(1, 1)),)))
    assert found.fault_class is F.USER_CODE, found


def test_the_end_of_its_gang_is_no_deletion_by_somebody() -> None:
    """JobSet deletes what is left of a gang that fails, also a pod whose rank had failed by itself a moment before."""
    wrong = end(1, 1, at=990.0, lines=raised("workflows.demo.DemoFaultError: asked for"))
    peer = end(0, 1, at=990.02, lines=("all-reduce failed: rank 1 closed the connection (exchange 18)",))
    by_itself = replace(left("node-1", wrong), first_failing_rank=1)
    pods = (pod("node-0", 0, reason="Error", exit_code=1), pod("node-1", 1, exit_code=1, deleted_at=995.0))
    found = diagnose(incident(pods=pods, terminations=(left("node-0", peer), by_itself)))
    alone = diagnose(
        incident(pods=(pods[0], pod("node-1", 1, exit_code=1)), terminations=(left("node-0", peer), by_itself))
    )
    assert (found.fault_class, found.confidence) == (F.USER_CODE, alone.confidence)
    assert "pod-deleted" not in {clue.rule for clue in found.evidence}


@pytest.mark.parametrize(
    ("deleted_at", "by_somebody"),
    [(970.0, True), (989.0, True), (990.0, False), (991.0, False)],
    ids=["long-before", "a-second-before", "in-the-same-second", "after"],
)
def test_what_jobset_deletes_after_a_rank_failed_was_deleted_by_nobody(deleted_at: float, by_somebody: bool) -> None:
    wrong = end(1, 1, at=990.4, lines=raised("workflows.demo.DemoFaultError: asked for"))
    pods = (pod("node-0", 0, exit_code=143, deleted_at=deleted_at), pod("node-1", 1, reason="Error", exit_code=1))
    asked = left("node-0", end(0, 143, requested=True, at=992.0))
    found = diagnose(incident(pods=pods, terminations=(asked, left("node-1", wrong))))
    assert found.fault_class == F.USER_CODE
    assert ("pod-deleted" in {clue.rule for clue in found.evidence}) is by_somebody


def test_a_pod_that_was_asked_to_end_was_deleted_by_somebody() -> None:
    asked = left("node-1", end(1, 143, requested=True))
    found = diagnose(incident(pods=(pod("node-1", 1, exit_code=143, deleted_at=995.0),), terminations=(asked,)))
    assert (found.fault_class, found.evidence[0].rule) == (F.PREEMPTED, "pod-deleted")
