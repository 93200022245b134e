"""Who is to blame in foreign logs: culprits and victims, nodes that lines name, and classes that blame nobody."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.blame import hosts
from flows.decisions.diagnosis.exits import exits
from flows.decisions.diagnosis.observers import hardware
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import STEPS, enqueued, lines_of, raised, seen, told, watchdog

F = FaultClass
Culprits = set[tuple[str, int | None]]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB."
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TERMINATED = "W0212 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4121 closing signal SIGTERM"
FAILED = "E0212 torch/distributed/elastic/api.py:869] failed (exitcode: {code}) local_rank: {rank} (pid: 4190)"
SUMMARY = """[0]:
  time      : 2025-02-12_03:11:09
  host      : gpu-3
  rank      : {rank} (local_rank: 1)
  exitcode  : {code}"""
COMPLETION = (
    "{host}:101:202 [0] transport/net_ib.cc:2451 NCCL WARN NET/IB: Got completion from peer {peer}<51231> with "
    "status=12 opcode=0 len=0 vendor err 129 (Recv)"
)
EFA = (
    "libfabric:8811:1777727412::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 113, message: Unresponsive receiver "
    "My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-0a1 Peer EFA addr: fi_addr_efa://[fe80::2]:0:1 "
    "Peer host id: {peer} (13)"
)
BROKEN_IMAGE = "PIL.UnidentifiedImageError: cannot identify image file '/d/1.jpg'"
NO_MASK = "TypeError: forward() missing 1 required positional argument: 'mask'"
KILLED = "[3.1] Memory cgroup out of memory: Killed process 4190 (python)"
SLURM_OOM = """slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.
srun: error: gpu-7: task 12: Out Of Memory
srun: error: gpu-8: tasks 16-23: Terminated"""
POD = """Name:   ft-worker-2
Node:   gpu-14/10.0.3.14
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      nvidia.com/gpu:  2"""
QUOTED = f"Error: May 19 07:08:57 ip-26-0-146-100 kernel: [6.6] {XID}"
BOOTSTRAP = "{host}:1:2 [0] NCCL INFO Bootstrap : Using eth0:{address}<0>"
EVENT = "16m  Normal  NodeNotReady  node/gpu-b-11  Node gpu-b-11 status is now: NodeNotReady"
PROMPT = """p100     NotReady   <none>   17h   v1.15
root@box:~# kubectl describe nodes p100
Taints:             node.kubernetes.io/unreachable:NoExecute"""
THREE = [("a-1", "10.0.0.7"), ("b-1", "10.0.0.7"), ("c-1", "10.0.0.1")]
TWO = [("gpu-1", "10.0.0.7"), ("gpu-7", "10.0.0.1")]
HOMES = [("gpu-7", "10.0.0.7"), ("gpu-1", "10.0.0.1")]
UNRESOLVED = (
    "[W socket.cpp:752] [c10d] The IPv4 network addresses of (m-0, 29500) cannot be retrieved (gai error: -3 - x)."
)
WAITED = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined."
RESET = "torch.distributed.DistNetworkError: Connection reset by peer"
EVICTED = "LustreError: 167-0: scratch-OST0012-osc: This client was evicted by scratch-OST0012; in progress operations"
DOWN = "[812033.2] mlx5_core 0000:5e:00.0 ens2f0np0: Link down"
UP = "[812035.2] mlx5_core 0000:5e:00.0 ens2f0np0: Link up"
OTHERS = "\n".join(watchdog(rank) for rank in (0, 1, 2))

WAITING = {f"rank-{rank}.log": watchdog(rank) for rank in (0, 1, 2)}
LAGGING = [text for rank in (0, 1, 2) for text in (watchdog(rank), enqueued(rank, 883))]


def log(*lines: str) -> dict[str, str]:
    return {"train.log": "\n".join(lines)}


def completions(pairs: list[tuple[str, str]]) -> list[str]:
    return [COMPLETION.format(host=host, peer=peer) for host, peer in pairs]


CASES: dict[str, tuple[dict[str, str], FaultClass, Culprits]] = {
    "the rank that ran out of memory, not those that waited for it": (
        {"rank-3.log": raised(3, OOM), **WAITING}, F.GPU_OOM, {("", 3)},
    ),
    "the rank that read a broken file, where the launcher ended the others": (
        log(raised(5, BROKEN_IMAGE), TERMINATED), F.DATA, {("", 5)},
    ),
    "an error of the code that the launcher ended the others for": (
        log(raised(1, NO_MASK), TERMINATED), F.USER_CODE, {("", 1)},
    ),
    "an error of the code in an excerpt that holds one rank alone": (
        log(raised(1, NO_MASK)), F.USER_CODE, set(),
    ),
    "two ranks that raised the same, one of them ended meanwhile": (
        log(raised(0, NO_MASK), raised(1, NO_MASK), SUMMARY.format(rank=0, code=-15), SUMMARY.format(rank=1, code=1)),
        F.USER_CODE,
        set(),
    ),
    "a killed rank": (log(TERMINATED, FAILED.format(code=-9, rank=4)), F.PROCESS_KILLED, {("", 4)}),
    "a killed rank of another node than the first": (
        log("nproc_per_node   : 8", "[rank10]: starting", FAILED.format(code=-9, rank=4)),
        F.PROCESS_KILLED,
        {("", 12)},
    ),
    "the killed rank, where the kernel tells that memory was the reason": (
        {**log(FAILED.format(code=-9, rank=6)), "dmesg.log": KILLED}, F.HOST_OOM, {("", 6)},
    ),
    "the task that ran out of memory, on its node": (log(SLURM_OOM), F.HOST_OOM, {("gpu-7", 12)}),
    "a rank with its node, as the launcher reports it": (
        log(raised(5, ECC), SUMMARY.format(rank=5, code=1), OTHERS), F.GPU_HARDWARE, {("gpu-3", 5)},
    ),
    "the ranks of a described pod": ({"pod.txt": POD}, F.HOST_OOM, {("gpu-14", 4), ("gpu-14", 5)}),
    "the node of a kernel's log": (
        {"kern-gpu-4.log": f"[1.1] {XID}", **WAITING}, F.GPU_HARDWARE, {("gpu-4", None)},
    ),
    "the node that a monitor quotes": (log(QUOTED), F.GPU_HARDWARE, {("ip-26-0-146-100", None)}),
    "the only host that anything names": (
        {"dmesg.log": f"[1.1] {XID}", **log(BOOTSTRAP.format(host="gpu-3", address="10.0.0.1"), OTHERS)},
        F.GPU_HARDWARE,
        {("gpu-3", None)},
    ),
    "the node that an event tells of": ({"events.txt": EVENT, **WAITING}, F.NODE_LOST, {("gpu-b-11", None)}),
    "not the machine at whose prompt somebody looked": (log(PROMPT), F.NODE_LOST, {("p100", None)}),
    "the peer that most others name": (log(*completions(THREE)), F.FABRIC, {("10.0.0.7", None)}),
    "two that name each other accuse nobody": (
        log(*(BOOTSTRAP.format(host=host, address=at) for host, at in HOMES), *completions(TWO)), F.FABRIC, set(),
    ),
    "the host that libfabric names": (
        {f"rank-{rank}.log": EFA.format(peer="i-0c3") for rank in (0, 8)}, F.FABRIC, {("i-0c3", None)},
    ),
    "the node whose kernel lost the link, not the peers that waited": (
        {"mi300x-12-dmesg.log": DOWN, "rank-5.log": COMPLETION.format(host="mi300x-09", peer="10.30.0.12")},
        F.FABRIC,
        {("mi300x-12", None)},
    ),
    "the one node that cannot resolve the name the others wait under": (
        {"node-0.log": WAITED, "node-1.log": RESET, "node-2.log": RESET, "node-3.log": UNRESOLVED},
        F.RENDEZVOUS,
        {("node-3", None)},
    ),
    "all nodes cannot resolve it": ({f"node-{number}.log": UNRESOLVED for number in range(4)}, F.RENDEZVOUS, set()),
    "the node that the file servers evicted": (
        {"dmesg-gpu-n03.log": f"[1.1] {EVICTED}", "rank-0.log": watchdog(0), "rank-8.log": STEPS},
        F.STORAGE,
        {("gpu-n03", None)},
    ),
    "the rank that lags": (log(*LAGGING, enqueued(3, 880)), F.COLLECTIVE_TIMEOUT, {("", 3)}),
    "the rank that did not pass the barrier": (
        log("[rank0]: RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms"),
        F.COLLECTIVE_TIMEOUT,
        {("", 3)},
    ),
    "a preemption blames nobody": (
        log("slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO PREEMPTION ***"),
        F.PREEMPTED,
        set(),
    ),
    "a missing module blames nobody": (
        {"node-1.log": "ModuleNotFoundError: No module named 'flash_attn'", "node-2.log": STEPS, "node-3.log": STEPS},
        F.CONFIG,
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_who_is_to_blame(sentence: str) -> None:
    files, kind, culprits = CASES[sentence]
    found = told(files)
    assert (found.fault_class, set(found.culprits)) == (kind, culprits)


def test_names_of_a_hostlist() -> None:
    assert hosts("gpu-[03-05,9],cn7") == ["gpu-03", "gpu-04", "gpu-05", "gpu-9", "cn7"]
    assert len(hosts("n[0-99999]")) == 64
    assert hosts("") == []


PORT = "[1.0] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link"
LINKS: dict[str, tuple[str, list[str]]] = {
    "came up once, as machines boot": (f"{DOWN}\n{UP}", []),
    "stays down": (f"{UP}\n{DOWN}", ["link-down"]),
    "went down again": (f"{DOWN}\n{UP}\n{DOWN}", ["link-down"]),
    "comes and goes": (f"{DOWN}\n{UP}\n" * 3, ["link-flaps"]),
    "another port came up": (f"{DOWN}\n{UP.replace('ens2', 'ens3')}", ["link-down"]),
    "InfiniBand": (f"{PORT} DOWN", ["link-down"]),
    "InfiniBand, later active": (f"{PORT} DOWN\n{PORT} ACTIVE", []),
    "a bond's slave": ("[1.0] bond0: (slave ens1f0np0): link status definitely down, disabling slave", ["link-down"]),
}  # fmt: skip


@pytest.mark.parametrize("sentence", LINKS)
def test_a_link_that(sentence: str) -> None:
    text, rules = LINKS[sentence]
    assert [clue.rule for clue in seen(hardware.down, {"dmesg-gpu-3.log": text})] == rules


ENDS: dict[str, tuple[str, list[tuple[int, int]]]] = {
    "DeepSpeed's launcher": (
        "[ERROR] ['python', 't.py', '--local_rank=3', '--x'] exits with return code = -9",
        [(3, 9)],
    ),
    "Lightning": ("[rank: 1] Child process with PID 4121 terminated with code -9. Forcefully terminating", [(1, 9)]),
    "horovodrun": ("The first process to do so was:\nProcess name: 2\nExit code: 137", [(2, 9)]),
    "srun": ("srun: error: gpu-8: tasks 8-10,12: Killed", [(8, 9), (9, 9), (10, 9), (12, 9)]),
    "Composer's": ("ERROR:composer.cli.launcher:Global rank 0 (PID 208865) exited with code -11", [(0, 11)]),
    "Composer's, as it was": ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.", [(2, 7)]),
    "Paddle's": ("Container rank 1 status failed cmd ['python', '-u', 't.py'] code -9 log log/workerlog.1", [(1, 9)]),
    "an end without a fault": ("rank 2 exited with code 0", []),
    "nothing": ("Exit code: 137", []),
}


@pytest.mark.parametrize("launcher", ENDS)
def test_ends_that_launchers_report(launcher: str) -> None:
    text, wanted = ENDS[launcher]
    assert [(end.rank, end.signal) for end in exits(lines_of({"x.log": text}))] == wanted


FELL = "srun: error: gpu-8: task 5: Exited with exit code 1"
TERMINATING = "srun: Terminating StepId=4711.0"
OTHERS_KILLED = "srun: error: gpu-8: tasks 0-4,6-7: Killed"
SWEPT: dict[str, tuple[str, set[int]]] = {
    "after another task had failed": (f"{FELL}\n{TERMINATING}\n{OTHERS_KILLED}", {0, 1, 2, 3, 4, 6, 7}),
    "before the step was ended": (f"{OTHERS_KILLED}\n{TERMINATING}", set()),
    "by whoever cancelled the step": (f"{TERMINATING}\n{OTHERS_KILLED}", set()),
    "because its memory ran out": (f"{FELL}\n{TERMINATING}\nsrun: error: gpu-8: task 3: Out Of Memory", set()),
}


@pytest.mark.parametrize("sentence", SWEPT)
def test_a_task_that_was_killed(sentence: str) -> None:
    text, wanted = SWEPT[sentence]
    assert {end.rank for end in exits(lines_of({"x.log": text})) if end.swept} == wanted


def test_nodes_before_lines_are_told_by_those_that_come_again() -> None:
    texts = [f"cn{number}: step {step}" for step in range(3) for number in (1, 2)] + ["cn3: OSError: x", "layer4: 0.1"]
    (line, other) = evidence_of([("x.log", texts)]).lines[-2:]
    assert (line.node, line.text, other.node) == ("cn3", "OSError: x", "")
    (line,) = evidence_of([("x.log", ["cn3: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."])]).lines
    assert line.node == "cn3"
    (line,) = evidence_of([("x.log", ["cn3: OSError: x"])]).lines
    assert line.node == ""
