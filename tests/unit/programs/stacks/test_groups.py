"""Who keeps a gang waiting: tables after public reports of hung jobs, and what holds whatever the stacks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.stacks.groups import (
    Stack,
    blamed_node,
    find_minority,
    group_stacks,
    stack_from_frames,
    stacks_of,
)
from workflows.programs.stacks.values import Dump, Frame, ProcessStacks, Thread

Frames = list[tuple[str, str]]
DIST = "/opt/conda/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py"
TRAIN: Frames = [("train_step", "/w/pretrain.py"), ("<module>", "/w/pretrain.py")]
ALL_REDUCE: Frames = [("all_reduce", DIST), ("wrapper", "/opt/torch/distributed/c10d_logger.py"), *TRAIN]
BARRIER: Frames = [("barrier", DIST), ("save_checkpoint", "/w/megatron/checkpointing.py"), *TRAIN]
RECV: Frames = [("recv_forward", "/w/megatron/core/pipeline_parallel/p2p_communication.py"), *TRAIN]
SYNCHRONIZE: Frames = [("synchronize", "/opt/torch/cuda/__init__.py"), *TRAIN]
STREAM: Frames = [("cudaStreamSynchronize", "libcudart.so"), *TRAIN]
LOADER: Frames = [("wait", "/usr/lib/python3.10/threading.py"), ("get", "/usr/lib/python3.10/queue.py"),
                  ("_try_get_data", "/opt/torch/utils/data/dataloader.py"), *TRAIN]  # fmt: skip
WRITING: Frames = [("write", "/opt/torch/distributed/checkpoint/filesystem.py"), ("save", "/w/ck.py"), *TRAIN]
HANDLING: Frames = [("acquire", "/usr/lib/python3.10/logging/__init__.py"), ("emit", "/w/hooks.py"),
                    ("excepthook", "/w/hooks.py")]  # fmt: skip
SLEEPING: Frames = [("clock_nanosleep", "libc.so.6"), ("sleep", "/w/retry.py"), ("open_shard", "/w/data.py"), *TRAIN]
# Seen on an H200: one rank of a DDP script on Gloo waited for a kernel of its own, the other for its gradients.
BACKWARD: Frames = [("_engine_run_backward", "/opt/torch/autograd/graph.py"),
                    ("backward", "/opt/torch/autograd/__init__.py"), ("backward", "/opt/torch/_tensor.py"),
                    *TRAIN]  # fmt: skip
OURS: Frames = [("_fill", "programs.pyz/workflows/programs/demo/collective.py"), *TRAIN]


def of(*frames: Frames) -> list[Stack]:
    """Rank r on node r / 2."""
    return [stack_from_frames(rank, f"node-{rank // 2}", one) for rank, one in enumerate(frames)]


TABLE: dict[str, tuple[list[Frames], list[int], str]] = {
    "one waits for its data loader": ([ALL_REDUCE] * 3 + [LOADER] + [ALL_REDUCE] * 4, [3], "_try_get_data"),
    "one writes a checkpoint, the others are at its barrier": ([BARRIER] * 5 + [WRITING], [5], "write"),
    "one is stuck in an exception handler": ([HANDLING] + [ALL_REDUCE] * 7, [0], "emit"),
    "one opens a file again and again": ([ALL_REDUCE, ALL_REDUCE, SLEEPING, ALL_REDUCE], [2], "open_shard"),
    "waiting for the device counts as waiting": ([SYNCHRONIZE, ALL_REDUCE, STREAM, LOADER], [3], "_try_get_data"),
    "two of eight elsewhere": ([LOADER, LOADER] + [ALL_REDUCE] * 6, [0, 1], "_try_get_data"),
    "one of two": ([OURS, LOADER], [1], "_try_get_data"),
    "half and half, and one half waits": ([ALL_REDUCE] * 2 + [LOADER] * 2, [2, 3], "_try_get_data"),
    "one in another collective than all": ([ALL_REDUCE] * 6 + [BARRIER], [6], "barrier"),
    "one at another stage of the pipeline": ([RECV] * 7 + [ALL_REDUCE], [7], "all_reduce"),
    "nobody is known to wait": ([[("spin", "/w/mine.py")]] * 7 + [[("load", "/w/mine.py")]], [7], "load"),
    "the device of one, all others in a collective": ([ALL_REDUCE] * 7 + [SYNCHRONIZE], [], "for the device"),
    "the device of one of two": ([BACKWARD, SYNCHRONIZE], [], "either may wait for the other"),
    "the devices of two of three": ([SYNCHRONIZE, LOADER, STREAM], [], "either may wait for the other"),
    "the devices of three of four": ([SYNCHRONIZE] * 3 + [LOADER], [3], "_try_get_data"),
    "the device of one, all others in their backward pass": ([BACKWARD] * 7 + [SYNCHRONIZE], [], "stand outside"),
    "one waits for its data loader, the others in their backward pass": ([BACKWARD] * 7 + [LOADER], [7], "_try_get"),
    "all in one collective": ([ALL_REDUCE] * 8, [], "none of them"),
    "all alike, and none waits": ([LOADER] * 8, [], "none of them"),
    "half in one collective, half in another": ([ALL_REDUCE] * 4 + [BARRIER] * 4, [], "no place holds more"),
    "half and half, nobody known to wait": ([[("a", "m.py")], [("b", "m.py")]], [], "no place holds more"),
    "most stand elsewhere": ([LOADER] * 5 + [ALL_REDUCE] * 3, [], "5 of 8 ranks stand outside"),
    "all differ": ([[(f"f{letter}", "m.py")] for letter in "abcdef"], [], "no place holds more"),
}


@pytest.mark.parametrize("name", TABLE)
def test_who_is_named(name: str) -> None:
    frames, ranks, words = TABLE[name]
    finding = find_minority(of(*frames))
    assert [one.rank for one in finding.blamed] == ranks
    assert words in finding.why
    assert all(one.node == f"node-{one.rank // 2}" for one in finding.blamed)
    if ranks:
        assert words in finding.blamed[0].frame


def test_what_differs_from_look_to_look_is_taken_off() -> None:
    one: Frames = [("poll", "libc.so.6"), ("0x7f12ab", "?"), ("kernel_7f12ab_000123", "/tmp/torchinductor_u/x12345.py"),
                   ("step+0x1f/0x20", "/a/venv/train.py")]  # fmt: skip
    two: Frames = [("sched_yield", "libc.so.6"), ("kernel_7f12ab_000456", "/tmp/torchinductor_u/x67890.py"),
                   ("step+0x2f/0x20", "/b/venv/train.py")]  # fmt: skip
    assert stack_from_frames(0, "n", one).signature == stack_from_frames(0, "n", two).signature
    assert stack_from_frames(0, "n", [("poll", "libc.so.6")]).signature == ("poll (libc.so.6)",), (
        "nothing else to go by"
    )


def rank_at(
    rank: int, state: str = "sleeping", frames: Frames | None = None, top: bool = True, waits: str = ""
) -> ProcessStacks:
    thread = Thread(
        1, "MainThread", state, [Frame(*frame) for frame in frames or []], waits, ["do_wait"] if waits else []
    )
    return ProcessStacks(rank, 100 + rank, "python", top, state, "py-spy" if frames else "kernel", "", [thread])


NODES = {0: "a", 1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize("state", ["stopped", "uninterruptible"])
def test_a_rank_that_cannot_run_is_named_whatever_its_stack(state: str) -> None:
    first = Dump("a", 1.0, 0.1, [rank_at(0, frames=ALL_REDUCE), rank_at(1, state, ALL_REDUCE)])
    second = Dump("b", 1.0, 0.1, [rank_at(2, frames=ALL_REDUCE), rank_at(3, frames=ALL_REDUCE), rank_at(3, top=False)])
    finding = find_minority(stacks_of([first, second], NODES))
    assert [(one.rank, one.frame) for one in finding.blamed] == [(1, state)]
    assert blamed_node(finding) == "a"


BUSY: Frames = [("futex in futex_do_wait", "kernel")]


@pytest.mark.parametrize(
    ("others", "state", "ranks"),
    [([BUSY], "stopped", [1]), ([BUSY], "uninterruptible", []), ([BACKWARD, LOADER, BUSY], "stopped", [3]),
     ([], "stopped", [])],
)  # fmt: skip
def test_who_is_stopped_is_named_wherever_the_others_stand(others: list[Frames], state: str, ranks: list[int]) -> None:
    finding = find_minority([*of(*others), Stack(len(others), "b", (state,), state, state=state)])
    assert [one.rank for one in finding.blamed] == ranks
    assert finding.blamed == () or "stopped" in finding.why


@pytest.mark.parametrize("state", ["stopped", "uninterruptible", "no stacks"])
@pytest.mark.parametrize("seen", [BUSY, ALL_REDUCE])
def test_where_most_cannot_be_seen_the_others_are_not_named(state: str, seen: Frames) -> None:
    finding = find_minority([*of(seen), *(Stack(rank, "b", (state,), state, state=state) for rank in (1, 2, 3))])
    assert finding.blamed == ()
    assert finding.why


def test_who_gave_no_stacks_is_named_when_all_others_wait() -> None:
    dump = Dump("a", 1.0, 0.1, [rank_at(0, frames=ALL_REDUCE), rank_at(1, frames=ALL_REDUCE)])
    finding = find_minority(stacks_of([dump], NODES))
    assert [(one.rank, one.node, one.frame) for one in finding.blamed] == [(2, "b", "no stacks"), (3, "b", "no stacks")]
    assert blamed_node(finding) == "b"
    assert find_minority(stacks_of([], NODES)).blamed == (), "silence of all names nobody"
    silent = Dump("a", 1.0, 3.0, [ProcessStacks(0, 5, why="no answer within 3 s")])
    assert find_minority(stacks_of([silent], NODES)).blamed == ()


def test_programs_without_python_are_told_apart_by_the_kernel() -> None:
    processes = [
        rank_at(rank, waits="futex in futex_wait_queue" if rank else "read(5 /data/x) in nfs_wait") for rank in NODES
    ]
    finding = find_minority(stacks_of([Dump("a", 1.0, 0.1, processes)], NODES))
    assert [one.rank for one in finding.blamed] == [0]
    assert "nfs_wait" in finding.blamed[0].frame


FRAMES = st.sampled_from([ALL_REDUCE, BARRIER, RECV, SYNCHRONIZE, LOADER, WRITING, HANDLING, []])


@given(st.lists(FRAMES, max_size=12), st.randoms())
def test_never_more_than_half_and_never_by_their_order(frames: list[Frames], dice: random.Random) -> None:
    stacks = of(*frames)
    finding = find_minority(stacks)
    assert 2 * len(finding.blamed) <= len(stacks)
    assert sorted(rank for group in finding.groups for rank in group.ranks) == list(range(len(stacks)))
    shuffled = list(stacks)
    dice.shuffle(shuffled)
    assert {one.rank for one in find_minority(shuffled).blamed} == {one.rank for one in finding.blamed}
    assert finding.why


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=30))
def test_any_words_are_a_stack(frames: Frames) -> None:
    stack = stack_from_frames(0, "n", frames)
    assert stack.signature
    assert group_stacks([stack, stack_from_frames(1, "n", frames)])[0].ranks == (0, 1)
