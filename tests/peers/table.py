"""The one table, and the rules under which it came about: pure."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from tests.peers.peers import PEERS, RANKS, RESTARTS, SAVE_EVERY, STEP_SECONDS, STEPS_AFTER, Peer
from tests.peers.readings import Row, Trial

OURS = "primus"
HEAD = (
    "peer",
    "script",
    "fault",
    "median",
    "worst",
    "over primus",
    "completed",
    "weights equal",
    "steps lost",
    "remark",
)
WORDS = {"kill": "SIGKILL", "hang": "SIGSTOP"}


def rules(told: Namespace) -> str:
    """What was done to everybody alike, from the options."""
    after = told.fault_step % SAVE_EVERY
    return f"""Rules
- One DistributedDataParallel script (tests/peers/scripts/plain_ddp.py; Gloo, CPU, one thread a rank) on {RANKS} nodes
  of one rank each, on one machine: {told.fault_step + STEPS_AFTER} steps of {STEP_SECONDS} s, rank 0 saves every
  {SAVE_EVERY} steps, every rank resumes from the newest.
- "script" says what had to be changed in it for a peer: nothing where it is empty.
- The fault comes when the victim has completed step {told.fault_step}, {after} steps after a save. Killed is the
  rank's own process (SIGKILL); for a hang it is stopped (SIGSTOP) and never continued. The ranks take turns as the
  victim.
- The clock runs from the fault to the end of the first step that was begun after it, as the ranks wrote it down.
- Who can notice a hang is told to wait {told.hang_seconds:g} s for a step; for those who cannot
  (torchrun, DLRover within minutes) the script's collectives fail after so long. Restarts: {RESTARTS} where counted.
- Completed: the last weights are told within {told.limit:g} s of the fault. Equal: bit for bit those of the same peer
  in a training without a fault. Steps lost: completed before the fault and done again.
- {told.trials} trials each, in rounds (everybody once, then everybody again); who completes none of the first
  {told.give_up} with a fault is not tried again with it, and its last lines stand below.
- torchrun appears twice, since with its defaults a restart can read addresses of the attempt before. The
  in-process wrapper looks more often than by default (every 0.1 to 0.5 s), and torchft waits 1 s for others to join. No
  other settings were searched for: intervals and waits are each peer's defaults where no rule above names them."""


def table(rows: Sequence[Row], peers: Sequence[Peer] = PEERS) -> str:
    """Markdown.

    Args:
        rows: those of one fault stand together.
        peers: what is known of them.
    """
    known = {peer.name: peer for peer in peers}
    ours = {row.fault: row.median_seconds for row in rows if row.peer == OURS}
    lines = [HEAD, ("---",) * len(HEAD)]
    lines += [_cells(row, known[row.peer], ours.get(row.fault)) for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row, peer: Peer, ours: float | None) -> tuple[str, ...]:
    ratio = row.median_seconds / ours if row.median_seconds is not None and ours else None
    return (
        row.peer,
        peer.changed,
        WORDS[row.fault],
        _seconds(row.median_seconds),
        _seconds(row.worst_seconds),
        "" if ratio is None else f"{ratio:.1f} x",
        f"{row.completed} of {row.trials}",
        f"{row.equal} of {row.completed}",
        "" if row.steps_lost is None else f"{row.steps_lost:.1f}",
        "; ".join(_remarks(row, peer)),
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"


def _remarks(row: Row, peer: Peer) -> list[str]:
    said = [peer.remark] if peer.remark else []
    if row.completed < row.trials:
        said += [f"victim rank {rank}: {completed} of {trials}" for rank, trials, completed in row.by_victim]
    if row.resumed > row.completed:
        said.append(f"{row.resumed - row.completed} resumed and did not end")
    if row.shrunk:
        said.append(f"{row.shrunk} went on with fewer ranks")
    return said


def faster(rows: Sequence[Row]) -> list[str]:
    """Where a peer wins, or completes more: said as plainly as the rest. Less than a step of difference is chance."""
    ours = {row.fault: row for row in rows if row.peer == OURS}
    said: list[str] = []
    for row in rows:
        mine = ours.get(row.fault)
        if mine is None or row.peer.startswith(OURS) or row.median_seconds is None:
            continue
        if mine.median_seconds is None or row.median_seconds < mine.median_seconds:
            said.append(f"{row.peer} resumes faster after {WORDS[row.fault]}")
        if row.completed / row.trials > mine.completed / mine.trials:
            said.append(f"{row.peer} completes more often after {WORDS[row.fault]}")
        if row.steps_lost is not None and mine.steps_lost is not None and row.steps_lost <= mine.steps_lost - 1:
            said.append(f"{row.peer} loses fewer steps after {WORDS[row.fault]}")
    return said


def failures(trials: Sequence[Trial]) -> list[str]:
    """The last lines of the first trial of each peer and fault that did not come to its end."""
    first: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        if not trial.completed:
            first.setdefault((trial.peer, trial.fault), trial)
    return [
        "\n".join(
            [f"{peer}, {WORDS.get(fault, 'no fault')}, rank {trial.victim}:", *(f"  {line}" for line in trial.said)]
        )
        for (peer, fault), trial in first.items()
    ]


def missing(absent: Mapping[str, str]) -> list[str]:
    """What could not be installed."""
    return [f"could not be installed: {name}: {why}" for name, why in absent.items()]
