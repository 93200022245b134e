"""`make bench-peers`: the same training, the same faults, for us and for the others; one table.

    python -m tests.peers --trials=3 --peers=primus,torchrun --faults=kill

Makes its own environment with torch and the peers in build/peers, and says what it could not install.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.peers import table
from tests.peers.environment import PLACE, TORCH, Installed, prepared
from tests.peers.peers import PEERS, RANKS, SAVE_EVERY, Peer
from tests.peers.readings import Row, Trial, row
from tests.peers.trial import SIGNALS, Bench

FLOORS = 3


def options(argv: list[str]) -> argparse.Namespace:
    """What is asked for.

    Raises:
        SystemExit: a word that nobody knows.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.peers")
    parser.add_argument("--trials", type=int, default=20, help="of each peer and fault")
    parser.add_argument("--peers", default="...",
                        help="their names or the beginnings of them, separated by commas; all")  # fmt: skip
    parser.add_argument("--faults", default="kill,hang")
    parser.add_argument("--hang-seconds", type=float, default=5.0, help="the budget that every peer gets")
    parser.add_argument("--fault-step", type=int, default=SAVE_EVERY * 5 + 3, help="the victim's last step")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds from the fault to the last weights")
    parser.add_argument("--give-up", type=int, default=3, help="a peer that completes none of so many is left out")
    told = parser.parse_args(argv)
    told.faults = told.faults.split(",")
    if unknown := set(told.faults) - set(SIGNALS):
        parser.error(f"--faults: {', '.join(sorted(unknown))}: there are {', '.join(SIGNALS)}")
    told.peers = chosen(told.peers)
    if not told.peers:
        parser.error(f"--peers: none of these: {', '.join(peer.name for peer in PEERS)}")
    return told


def chosen(words: str) -> list[Peer]:
    """The peers whose names begin with one of the words; all for `...`."""
    beginnings = words.split(",")
    if "..." in beginnings:
        return list(PEERS)
    return [peer for peer in PEERS if any(peer.name.lower().startswith(word.lower()) for word in beginnings)]


class Campaign:
    """All trials of all peers.

    Args:
        bench: runs one.
        told: the options.
    """

    def __init__(self, bench: Bench, told: argparse.Namespace) -> None:
        self._bench = bench
        self._told = told
        self.calm: dict[str, str] = {}
        self.trials: list[Trial] = []
        self.unable: list[Trial] = []
        """Peers that do not come to an end even when nothing happens."""

    def run(self, peers: list[Peer]) -> None:
        """Each without a fault, then in rounds."""
        for peer in peers:
            trial = self._bench.trial(peer)
            _say(trial)
            if trial.completed:
                self.calm[peer.name] = trial.weights
            else:
                self.unable.append(trial)
        for number in range(self._told.trials):
            for fault in self._told.faults:
                for peer in peers:
                    if self._worth(peer, fault):
                        self.trials.append(self._bench.trial(peer, fault, number % RANKS))
                        _say(self.trials[-1])

    def _worth(self, peer: Peer, fault: str) -> bool:
        ends = [trial.completed for trial in self._of(peer.name, fault)]
        return peer.name in self.calm and (len(ends) < self._told.give_up or any(ends))

    def _of(self, name: str, fault: str) -> list[Trial]:
        return [trial for trial in self.trials if (trial.peer, trial.fault) == (name, fault)]

    def rows(self) -> list[Row]:
        """One for each peer and fault that was tried."""
        pairs = [(fault, name) for fault in self._told.faults for name in self.calm]
        tried = [(name, self._of(name, fault)) for fault, name in pairs]
        return [row(trials, self.calm[name], RANKS) for name, trials in tried if trials]


def _say(trial: Trial) -> None:
    seconds = "never" if trial.resumed_seconds is None else f"{trial.resumed_seconds:.2f} s"
    what = f"{trial.fault}, rank {trial.victim}: {seconds}" if trial.fault else "no fault"
    end = "completed" if trial.completed else f"not completed: {' / '.join(trial.said)}"
    print(f"  {trial.peer}: {what}, {end}", file=sys.stderr, flush=True)


def tell(campaign: Campaign, told: argparse.Namespace, installed: Installed, floors: list[float]) -> bool:
    """Everything, on standard output; whether ours held."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    rows = campaign.rows()
    print(
        f"{time.strftime('%Y-%m-%d')}, {cores} cores, load {load:.0f}, Python {platform.python_version()}, "
        f"{TORCH.name}, Linux {platform.release()}\n"
    )
    print(f"{table.rules(told)}\n\n{table.table(rows)}\n")
    floor = f"median {statistics.median(floors):.2f} s, worst {max(floors):.2f} s" if floors else "not measured"
    print(f"floor by hand, no supervisor (start of both processes, restore, one step): {floor}")
    for line in (*table.faster(rows), *table.missing(installed.missing)):
        print(line)
    for text in table.failures((*campaign.unable, *campaign.trials)):
        print(text)
    mine = [found for found in rows if found.peer == table.OURS]
    return all(found.equal == found.trials for found in mine)


def main(argv: list[str]) -> int:
    """Print the table; 1 where one of our own trainings did not end as one without a fault."""
    told = options(argv)
    installed = prepared()
    if TORCH.name in installed.missing:
        print("\n".join(table.missing(installed.missing)), file=sys.stderr)
        return 2
    peers = [peer for peer in told.peers if peer.needs not in installed.missing]
    with tempfile.TemporaryDirectory(prefix="primus-peers-", ignore_cleanup_errors=True) as place:
        bench = Bench(Path(place), installed, told.hang_seconds, told.limit, told.fault_step)
        campaign = Campaign(bench, told)
        floors = [bench.floor_seconds() for _ in range(FLOORS)]
        campaign.run(peers)
    good = tell(campaign, told, installed, floors)
    found = [dataclasses.asdict(trial) for trial in (*campaign.unable, *campaign.trials)]
    (PLACE / "results.json").write_text(
        json.dumps({"calm": campaign.calm, "floors": floors, "trials": found}, indent=1)
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
