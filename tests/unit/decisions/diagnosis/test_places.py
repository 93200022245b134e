"""Where lines belong: names of files, prefixes, and what lines say of machines."""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.files import place_of
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.places import own_node, rank_of, read_places, spoken_of
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import lines_of
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine


@rows("diagnosis/places")
def test_what_a_file_s_name_says(name: str, source: str, rank: int | None, node: str) -> None:
    place = place_of(name)
    assert (place.source, place.rank, place.node) == (source, rank, node)


@rows("diagnosis/places")
def test_what_prefixes_say(raw: str, text: str, rank: int | None, node: str) -> None:
    line = clean(LogLine(raw, "file"))
    assert (line.text, line.rank, line.node) == (text, rank, node)


def test_a_global_rank_is_right_whatever_the_file_says_and_a_local_one_is_not() -> None:
    assert clean(LogLine("[rank11]: x", "rank", 3)).rank == 11
    assert clean(LogLine("[default3]:x", "rank", 11)).rank == 11
    assert clean(LogLine("7: x", "rank", 3)).text == "7: x"


@rows("diagnosis/places")
def test_machines_that_lines_come_from_and_tell_of(text: str, own: str, spoken: str) -> None:
    assert (own_node(text), spoken_of(text)) == (own, spoken)


def test_ranks_are_read_from_a_line_s_own_words_where_no_launcher_named_them() -> None:
    assert rank_of(LogLine("[E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog", "file")) == 7
    assert rank_of(LogLine("x NCCL INFO comm 0x55d0aa rank 5 nRanks 16", "file")) == 5
    assert rank_of(LogLine("[Rank 7] x", "rank", 3)) == 3
    assert rank_of(LogLine("rank of the matrix", "file")) is None


COMPLETION = (
    "{host}:1:2 [0] NCCL WARN NET/IB: Got completion from peer {peer}<511> with status=12 opcode=0 len=0 vendor err "
    "129 (Recv) localGid ::ffff:{local} remoteGids::ffff:{remote} hca mlx5_0"
)
DESCRIBED = """Name:             llama-ft-worker-2
Node:             gpu-node-14/10.0.3.14
    Limits:
      nvidia.com/gpu:  2"""


def test_addresses_lead_to_nodes() -> None:
    places = read_places(
        lines_of(
            {
                "a.log": "gpu-3:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>",
                "b.log": COMPLETION.format(host="gpu-7", peer="10.0.0.3", local="10.1.0.7", remote="10.1.0.9"),
                "c.log": COMPLETION.format(host="gpu-9", peer="10.0.0.7", local="10.1.0.9", remote="10.1.0.7"),
                "d.txt": DESCRIBED,
            }
        )
    )
    known = {"10.0.0.3": "gpu-3", "10.1.0.7": "gpu-7", "10.0.0.7": "gpu-7", "10.0.3.14": "gpu-node-14"}
    assert {name: places.node_at(name) for name in known} == known
    assert places.node_at("10.9.9.9", "gpu-3") == "10.9.9.9"
    assert places.pods == {"d.txt": (4, 5)}


def test_a_master_comes_before_the_workers() -> None:
    files = {"worker.txt": DESCRIBED, "master.txt": DESCRIBED.replace("worker-2", "master-0")}
    assert read_places(lines_of(files)).pods == {"worker.txt": (6, 7), "master.txt": (0, 1)}


def test_the_unknown_address_that_one_of_two_nodes_blames_is_the_other_one() -> None:
    text = "gpu-1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8\ngpu-2:1:2 [0] NCCL INFO x"
    places = read_places(lines_of({"train.log": text}))
    assert places.node_at("10.0.0.9", "gpu-1") == "gpu-2"
    assert places.node_at("i-0c3f9be10a5d21e77", "gpu-1") == "i-0c3f9be10a5d21e77"


def test_the_node_of_a_clue_is_found_in_its_words_by_its_rank_or_by_its_file() -> None:
    lines = lines_of({"shell.log": "user@cn-234 ~ % nvidia-smi\nlost", "x.log": "[rank3]: gpu-3:1:2 [0] NCCL INFO x"})
    places = read_places(lines, [(9, "gpu-9")])

    def node(text: str, rank: int | None = None, file: str = "") -> str:
        return places.node_of(Clue(FaultClass.GPU_HARDWARE, 0.9, text, "x", "node", "", rank, file=file))

    assert node("lost", file="shell.log") == "cn-234"
    assert (node("lost", 3), node("lost", 9), node("lost", 4)) == ("gpu-3", "gpu-9", "")
    assert node("Node gpu-b-11 status is now: NodeNotReady", file="shell.log") == "gpu-b-11"
