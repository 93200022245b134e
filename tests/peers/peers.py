"""How each peer is started: the same script (or the least change that it asks for) on two nodes of one rank each.

Pure: commands from a place. Services come first and are waited for; the nodes are started together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
MAIN = Path(__file__).parent.parent.parent / "workflows" / "programs" / "main.py"
RANKS, STEP_SECONDS, SAVE_EVERY = 2, 0.1, 5
STEPS_AFTER = 12
"""From the step of the fault to the last one."""
RESTARTS = 3
UNLIMITED_SECONDS = 1800.0
"""Gloo's default."""
HERE = "127.0.0.1"
PRELOAD = ("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel")
"""As a profile would say it: the first optimizer makes torch import its compiler, which takes as long as torch."""


@dataclass(frozen=True)
class Ground:
    """Where one trial happens."""

    folder: Path
    bin: Path
    """Programs of the peers' environment."""
    ports: tuple[int, int]
    """Free on loopback."""
    hang_seconds: float
    """How long nothing may happen before it counts as a hang: the same for all who can be told."""
    fault_step: int = 28
    """The victim's last: some steps after a save, and late enough for what is made ready beside the training."""
    net: str = "127.9.9"
    """Loopback addresses for launchers that have one each."""

    @property
    def steps(self) -> int:
        """Of the training."""
        return self.fault_step + STEPS_AFTER

    @property
    def record(self) -> Path:
        """Every rank's steps."""
        return self.folder / "record.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Of the training."""
        return self.folder / "checkpoints"

    def script(self, name: str = "plain_ddp.py", limited: bool = False) -> list[str]:
        """A script and its arguments.

        Args:
            name: which.
            limited: the peer cannot notice a hang by itself, so the collectives are given the budget.
        """
        group_seconds = self.hang_seconds if limited else UNLIMITED_SECONDS
        return [
            str(SCRIPTS / name),
            f"--steps={self.steps}", f"--step-seconds={STEP_SECONDS}", f"--save-every={SAVE_EVERY}",
            f"--checkpoints={self.checkpoints}", f"--record={self.record}", f"--group-seconds={group_seconds:g}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A process of a trial."""

    name: str
    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict[str, str])
    address: tuple[str, int] | None = None
    """A service: where it listens. It is waited for, and stopped when the nodes have ended."""


@dataclass(frozen=True)
class Peer:
    """One way to keep a training alive."""

    name: str
    needs: str
    """The package, by its name."""
    changed: str
    """What the script needs for it; "": nothing."""
    commands: Callable[[Ground], list[Command]]
    remark: str = ""


def by_hand(ground: Ground) -> list[Command]:
    """The script's processes and nothing else: the floor of every restart."""
    return [
        Command(f"rank-{rank}", [str(ground.bin / "python"), *ground.script()], _torchruns_names(ground, rank))
        for rank in range(RANKS)
    ]


def _torchruns_names(ground: Ground, rank: int) -> dict[str, str]:
    named = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": 1}
    port = {"MASTER_ADDR": HERE, "MASTER_PORT": str(ground.ports[0])}
    return {**{name: str(value) for name, value in named.items()}, **port}


def primus(forkable: bool) -> Callable[[Ground], list[Command]]:
    """Our coordinator and a launcher per node, as a JobSet would start them."""

    def commands(ground: Ground) -> list[Command]:
        python = [sys.executable, "-I", "-S", str(MAIN)]
        address = (f"{ground.net}.1", ground.ports[0])
        hang = [f"--hang-step-floor-seconds={ground.hang_seconds:g}", "--hang-init-seconds=120"]
        coordinate = [*python, "coordinate", f"--pods={RANKS}", f"--port={address[1]}", f"--restarts={RESTARTS}", *hang]
        common = {
            "PRIMUS_RUN": "peers", "PRIMUS_ATTEMPT": "1", "PRIMUS_TOKEN": "of-this-trial-alone",
            "PRIMUS_RUN_DIR": str(ground.folder / "run"), "PRIMUS_CHECKPOINT_DIR": str(ground.checkpoints),
            "PRIMUS_COORDINATOR_URL": f"http://{address[0]}:{address[1]}",
        }  # fmt: skip
        service = Command("coordinator", coordinate, {**common, "PRIMUS_POD_IP": address[0]}, address)
        return [service, *(_launcher(ground, python, index, forkable, common) for index in range(RANKS))]

    return commands


def _launcher(ground: Ground, python: list[str], index: int, forkable: bool, common: dict[str, str]) -> Command:
    flags = [
        "--role=trainer", f"--pods={RANKS}", f"--world-size={RANKS}", "--framework=regex",
        r"--pattern=step (?P<step>\d+)/", f"--steps={ground.steps}", "--checkpoint-format=pattern",
        r"--checkpoint-pattern=^step-(?P<step>\d+)\.pt$", "--in-place=true", f"--preload={','.join(PRELOAD)}",
        f"--forkable={str(forkable).lower()}", "--",
    ]  # fmt: skip
    place = {
        "PRIMUS_POD": f"pod-{index}", "PRIMUS_NODE": f"node-{index}", "PRIMUS_POD_INDEX": str(index),
        "PRIMUS_POD_IP": f"{ground.net}.{10 + index}",
    }  # fmt: skip
    trainer = [str(ground.bin / "python"), *ground.script()]
    return Command(f"node-{index}", [*python, "launch", *flags, *trainer], {**common, **place})


def elastic(
    program: str, *more: str, script: str = "plain_ddp.py", **environment: str
) -> Callable[[Ground], list[Command]]:
    """Torchrun, and what stems from it: an agent per node, which meet at the first one's store."""

    def commands(ground: Ground) -> list[Command]:
        agent = [
            str(ground.bin / program), f"--nnodes={RANKS}", "--nproc-per-node=1", f"--max-restarts={RESTARTS}",
            "--rdzv-backend=c10d", f"--rdzv-endpoint={HERE}:{ground.ports[0]}", "--rdzv-id=peers",
            f"--local-addr={HERE}", *(word.format(hang=ground.hang_seconds) for word in more),
        ]  # fmt: skip
        return [
            Command(f"node-{index}", [*agent, *ground.script(script, limited=script == "plain_ddp.py")], environment)
            for index in range(RANKS)
        ]

    return commands


def in_process(ground: Ground) -> list[Command]:
    """The wrapper around the training, in processes that are started plainly, as a batch system would."""
    more = {"STORE_PORT": str(ground.ports[1]), "HANG_SECONDS": f"{ground.hang_seconds:g}"}
    argv = [str(ground.bin / "python"), *ground.script("in_process_ddp.py")]
    return [Command(f"node-{rank}", argv, {**_torchruns_names(ground, rank), **more}) for rank in range(RANKS)]


def dlrover(ground: Ground) -> list[Command]:
    """A local master, started by hand, and an agent per node."""
    address = (HERE, ground.ports[0])
    python = str(ground.bin / "python")
    master = [python, "-m", "dlrover.python.master.main", "--platform=local", f"--port={address[1]}",
              f"--node_num={RANKS}", "--job_name=peers"]  # fmt: skip
    agent = [str(ground.bin / "dlrover-run"), f"--nnodes={RANKS}", "--nproc_per_node=1", f"--max_restarts={RESTARTS}"]
    common = {"DLROVER_MASTER_ADDR": f"{HERE}:{address[1]}", "NODE_NUM": str(RANKS), "ELASTIC_JOB_NAME": "peers"}
    places = [{"NODE_RANK": str(index), "NODE_ID": str(index), "NODE_TYPE": "worker"} for index in range(RANKS)]
    nodes = [
        Command(f"node-{index}", [*agent, *ground.script(limited=True)], {**common, **place})
        for index, place in enumerate(places)
    ]
    return [Command("master", master, {"NODE_NUM": str(RANKS)}, address), *nodes]


def replicas(ground: Ground) -> list[Command]:
    """A lighthouse, and a replica of one rank per node, each under an agent of its own that starts it again.

    The agent shares its store, which torchft wants: its manager is a client of a store that stands already.
    """
    address = (HERE, ground.ports[0])
    lighthouse = [str(ground.bin / "torchft_lighthouse"), f"--bind={HERE}:{address[1]}", "--min_replicas=1",
                  "--join_timeout_ms=1000", "--quorum_tick_ms=100"]  # fmt: skip
    agent = [str(ground.bin / "torchrun"), "--nnodes=1", "--nproc-per-node=1", f"--max-restarts={RESTARTS}",
             "--rdzv-backend=c10d", f"--rdzv-endpoint={HERE}:0", f"--local-addr={HERE}"]  # fmt: skip
    common = {
        "TORCHFT_LIGHTHOUSE": f"http://{HERE}:{address[1]}",
        "HANG_SECONDS": f"{ground.hang_seconds:g}",
    }
    nodes = [
        Command(f"node-{index}", [*agent, *ground.script("replicas_ddp.py")], {**common, "REPLICA": str(index)})
        for index in range(RANKS)
    ]
    return [Command("lighthouse", lighthouse, {}, address), *nodes]


TORCH, NVRX, DLROVER, TORCHFT = (
    "torch 2.9.0",
    "nvidia-resiliency-ext 0.4.1",
    "dlrover 0.6.1",
    "torchft-nightly 2026.10.26",
)
HEARTBEATS = ("--ft-rank-heartbeat-timeout={hang:g}", "--ft-initial-rank-heartbeat-timeout=120",
              "--ft-workload-check-interval=1")  # fmt: skip
PEERS = (
    Peer("primus", TORCH, "", primus(forkable=True)),
    Peer("primus, started plainly", TORCH, "", primus(forkable=False), "no parked process"),
    Peer("torchrun", TORCH, "", elastic("torchrun"), "defaults: the store of the rendezvous is shared with the ranks"),
    Peer("torchrun, no share", TORCH, "", elastic("torchrun", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
         "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
    Peer("ft_launcher", NVRX, "heartbeats", elastic("ft_launcher", *HEARTBEATS, script="heartbeats_ddp.py",
         TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")),
    Peer("in-process wrapper", NVRX, "wrapped", in_process, "never starts a process again: goes on with fewer ranks"),
    Peer("DLRover", DLROVER, "", dlrover, "local master; its own hang detection counts in minutes"),
    Peer("torchft", TORCHFT, "rewritten", replicas, "the survivor goes on alone; no step is given back"),
)  # fmt: skip
