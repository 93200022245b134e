"""Who is to blame in foreign logs: culprits and victims, nodes that lines name, and classes that blame nobody."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.blame import hosts
from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.exits import exits
from flows.decisions.diagnosis.observers import hardware
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import lines_of, seen, told
from tests.support.cases.rows import rows

Culprits = set[tuple[str, int | None]]
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
EFA = (
    "libfabric:8811:1777727412::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 113, message: Unresponsive receiver "
    "My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-0a1 Peer EFA addr: fi_addr_efa://[fe80::2]:0:1 "
    "Peer host id: {peer} (13)"
)
DOWN = "[812033.2] mlx5_core 0000:5e:00.0 ens2f0np0: Link down"
UP = "[812035.2] mlx5_core 0000:5e:00.0 ens2f0np0: Link up"


def log(*lines: str) -> dict[str, str]:
    return {"train.log": "\n".join(lines)}


@rows("diagnosis/blame")
def test_who_is_to_blame(files: dict[str, str], kind: FaultClass, culprits: Culprits) -> None:
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


@rows("diagnosis/blame")
def test_ends_that_launchers_report(text: str, wanted: list[tuple[int, int]]) -> None:
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
    assert {end.rank for end in exits(lines_of({"x.log": text})) if end.killed_with_step} == wanted


def test_nodes_before_lines_are_told_by_those_that_come_again() -> None:
    texts = [f"cn{number}: step {step}" for step in range(3) for number in (1, 2)] + ["cn3: OSError: x", "layer4: 0.1"]
    (line, other) = evidence_of([("x.log", texts)]).lines[-2:]
    assert (line.node, line.text, other.node) == ("cn3", "OSError: x", "")
    (line,) = evidence_of([("x.log", ["cn3: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."])]).lines
    assert line.node == "cn3"
    (line,) = evidence_of([("x.log", ["cn3: OSError: x"])]).lines
    assert line.node == ""


LOST = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("said", "files", "rank"),
    [
        ("its prefix", {"a.log": [f"[rank3]: {LOST}"]}, 3),
        ("who speaks first", {"a.log": [f"[rank3]: {LOST}", f"[rank1]: {LOST}"]}, 3),
        ("in files without times nobody is first", {"rank-3.log": [LOST], "rank-1.log": [LOST]}, None),
        ("by their times",
         {"rank-3.log": [f"2026-01-01 10:00:07 {LOST}"], "rank-1.log": [f"2026-01-01 10:00:05 {LOST}"]}, 1),
        ("its words", {"a.log": ["NCCL WARN Failed to execute operation Connect from rank 11, retcode 2"]}, 11),
        ("the only one of which the log speaks", {"a.log": ["rank 0 is initialized local_rank = 0", LOST]}, 0),
        ("the number within the node where there is no other", {"a.log": ["local_rank: 2 begins", LOST]}, 2),
        ("its GPU", {"a.log": ["CUDA out of memory. Tried to allocate 2 GiB. GPU 5 has a total capacity of 79"]}, 5),
        ("two are spoken of", {"a.log": ["rank 0 is ready", "rank 1 is ready", LOST]}, None),
        ("nobody is", {"a.log": [LOST]}, None),
        ("no failure", {"a.log": ["[rank3]: step 1 loss 2.0", "[rank3]: step 2 loss 1.9", "training done"]}, None),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)  # fmt: skip
def test_the_rank_that_speaks_first_of_a_failure_is_named(
    said: str, files: dict[str, list[str]], rank: int | None
) -> None:
    found = diagnose(evidence_of(tuple((name, tuple(lines)) for name, lines in files.items())))
    assert found.first_failing_rank == rank, said
