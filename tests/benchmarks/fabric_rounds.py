"""Locating what is bad in a fabric: rounds and node-seconds beside pairwise tests, and how often it is wrong.

A measurement takes `SECONDS`, whatever the size of its groups, and so does a round. The peers are told nothing of the
answer: the circle method tests all pairs in n - 1 rounds of n/2 disjoint pairs; full pairwise tests them one by one.
`--cases N` sets how many fabrics are drawn for the error rates.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from random import Random

from flows.testing.links import PROOFS
from tests.support.fakes.fabrics import (
    ORDINARY,
    QUIET,
    ROUGH,
    Fault,
    Noise,
    Played,
    World,
    drawn,
    leaf_spine,
    play,
    rail_optimised,
    score,
    world_of,
)

SECONDS = 20.0
SIZES = (16, 256, 4096)
NODES_UNDER_SWITCH = 32
CASES = 6_000
CHUNK = 250
LINKS = 200
ALL = tuple(range(8))
SHARES = (0.1, 0.3, 0.5, 0.9)
SETTINGS: dict[str, tuple[Noise, float | None, int]] = {
    "without noise": (QUIET, None, 1),
    "ordinary noise": (ORDINARY, None, 1),
    "rough noise": (ROUGH, None, 1),
    **{f"rough, {PROOFS} proofs": (ROUGH, None, PROOFS)},
    **{f"flaps, {share}": (ORDINARY, share, PROOFS) for share in SHARES},
    **{f"flaps, {share}, 4 proofs": (ORDINARY, share, 4) for share in SHARES},
}
"""Noise, in which share of the measurements everything bad shows (None: in all), and how many proofs are asked for."""
MISSED_GOAL = {"without noise": 0.0, "ordinary noise": 0.003, "rough noise": 0.01}
ACCUSED_GOAL = {"without noise": 0.0, "ordinary noise": 0.003, "rough noise": 0.01}
UNKNOWN_GOAL = {"without noise": 0.001, "ordinary noise": 0.01, "rough noise": 0.03}
"""Shares of the causes, the findings and the good nodes; measured over 1,000 to 2,000 fabrics each: none, none, and
with rough noise 0.17 % missed, 0.25 % accused, 0.65 % unknown."""


def scenes(count: int) -> dict[str, World]:
    """What may be bad, from nothing to one of each."""
    under = min(NODES_UNDER_SWITCH, count // 4)
    good = world_of(leaf_spine(count, under), seed=7)
    rails = world_of(rail_optimised(count, under), seed=7)
    far = f"n{count // 2 + 1}"
    slow = Fault(ALL, 0.5)
    some = {f"n{number * (count // 8) + 3}": Fault((number % 8,), None if number % 2 else 0.6) for number in range(4)}
    return {
        "nothing": good,
        "one slow node": replace(good, nodes={"n5": slow}),
        "four nodes, two silent": replace(good, nodes=some),
        "one link": replace(good, links={("n2", far): slow}),
        "a switch's way out": replace(good, switches={"leaf1": replace(slow, uplink=True)}),
        "a rail's switch": replace(rails, switches={"unit1-rail3": Fault((3,), 0.4)}),
        "a rail": replace(good, everywhere=Fault((2,), 0.5)),
        "four nodes, two links, a switch": replace(
            good,
            nodes=some,
            links={("n2", f"n{count - 2}"): slow, ("n1", f"n{count - 3}"): Fault((1,), 0.5)},
            switches={"leaf1": replace(slow, uplink=True)},
        ),
    }


def figures(count: int) -> bool:
    """Print the table of one size; False where a cause was not found, or good nodes were blamed."""
    pairs = count * (count - 1) // 2
    print(f"{count} nodes                          rounds   minutes   node-hours   planned in")
    right = True
    for name, world in scenes(count).items():
        began = time.process_time()
        played = play(world, 1)
        taken = time.process_time() - began
        told = score(world, played.answer)
        clean = told["found"] == told["bad"] and not told["accused"]
        right &= clean
        hours = played.node_rounds * SECONDS / 3600
        row(name, len(played.state.rounds), hours, f"{taken:8.2f} s{'' if clean else '  WRONG'}")
    row("circle method, all pairs", count - 1, 2 * pairs * SECONDS / 3600)
    row("full pairwise, one by one", pairs, 2 * pairs * SECONDS / 3600)
    print()
    return right


def row(name: str, rounds: int, hours: float, rest: str = "") -> None:
    print(f"  {name:<34}{rounds:>9}{rounds * SECONDS / 60:>10.1f}{hours:>13.2f}   {rest}")


def errors(job: tuple[str, int]) -> tuple[Counter[str], float]:
    """Scores of one chunk of fabrics, and processor seconds."""
    name, first = job
    noise, share, proofs = SETTINGS[name]
    told, began = Counter[str](), time.process_time()
    for seed in range(first, first + CHUNK):
        world = drawn(Random(seed), noise=noise, flapping=share is not None, share=share)
        world = replace(world, fabric=replace(world.fabric, proofs=proofs))
        played: Played = play(world, seed)
        told += score(world, played.answer)
        told["rounds"] += played.answer.rounds
        told["fabrics"] += 1
    return told, time.process_time() - began


def remembered() -> None:
    """Print how often a flapping link among 32 nodes is found, unknown before or having missed in an earlier test."""
    print(
        "\na flapping link among 32 nodes, ordinary noise: share of looks, found, rounds; the same, known to the ledger"
    )
    for share in SHARES:
        row_: list[str] = []
        for suspects in ((), (("n1", "n20"),)):
            told = Counter[str]()
            for seed in range(LINKS):
                world = world_of(leaf_spine(32, 8), seed=seed, noise=ORDINARY)
                fabric = replace(world.fabric, proofs=PROOFS, suspects=suspects)
                played = play(replace(world, links={("n1", "n20"): Fault(ALL, 0.4, share)}, fabric=fabric), seed)
                told += score(world=replace(world, links={("n1", "n20"): Fault(ALL, 0.4, share)}), answer=played.answer)
                told["rounds"] += played.answer.rounds
            row_.append(f"{told['found'] / LINKS:7.0%}{told['rounds'] / LINKS:8.1f}")
        print(f"  {share:<6}{row_[0]}      {row_[1]}")


def rates(cases: int) -> bool:
    """Print the error rates; False where a goal was missed."""
    jobs = [(name, first) for name in SETTINGS for first in range(0, max(CHUNK, cases // len(SETTINGS)), CHUNK)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = list(pool.map(errors, jobs))
    print("                        fabrics   causes   missed     open  accused  good unknown   rounds   ms each")
    right = True
    for name in SETTINGS:
        told, seconds = Counter[str](), 0.0
        for (of, _), (some, spent) in zip(jobs, done, strict=True):
            if of == name:
                told, seconds = told + some, seconds + spent
        missed, open_ = told["missed"] / told["bad"], told["open"] / told["bad"]
        accused, unknown = told["accused"] / max(1, told["findings"]), told["unknown"] / told["good"]
        print(
            f"{name:<22}{told['fabrics']:>9}{told['bad']:>9}{missed:>9.3%}{open_:>9.3%}{accused:>9.3%}{unknown:>14.3%}"
            f"{told['rounds'] / told['fabrics']:>9.1f}{seconds / told['fabrics'] * 1000:>10.1f}"
        )
        kinds = {key: count for key, count in sorted(told.items()) if key.startswith(("missed ", "accused "))}
        print(f"                      {kinds or 'nothing wrong'}")
        if name in MISSED_GOAL:
            right &= missed <= MISSED_GOAL[name] and accused <= ACCUSED_GOAL[name] and unknown <= UNKNOWN_GOAL[name]
    return right


def main() -> int:
    """Print both; 1 where something was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=CASES)
    cases = parser.parse_args().cases
    right = all([figures(count) for count in SIZES])
    right &= rates(cases)
    remembered()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
