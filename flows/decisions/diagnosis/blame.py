"""Who is to blame, by clues that were not discounted, and only by those; and what earlier incidents say of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from flows.decisions.diagnosis.clues import Clue, Weighing
from flows.decisions.diagnosis.files import place_of
from flows.decisions.diagnosis.gang import Gang
from flows.decisions.diagnosis.places import NodePlaces
from flows.decisions.policy import POLICY, policy_of
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.model.attempt import Evidence, PastIncident, Signal
from workflows.model.fleet import PRIOR_RATE

Culprit = tuple[str, int | None]
"""Node ("" where it is not known) and rank (None: the whole node)."""
NOBODY: Culprit = ("", None)

BLAME_SHARE = 0.5
"""Only clues with at least this share of the strongest one's weight blame anybody."""
_LOADING = "in DataLoader worker process"
"""What a loader's worker trips over is in the data, of which any rank may get the next piece."""
FEWEST_PLACES = 3
"""Places that must be known before the few among them mean anything."""
_HOSTLIST = re.compile(r"(?P<stem>[^\s,\[\]]{1,100})(?:\[(?P<numbers>\d[\d,-]{0,400})\])?")
_TASK = re.compile(r"/task:(\d{1,6})")


def culprits_of(
    evidence: Evidence, weighed: Weighing, gang: Gang, places: NodePlaces | None = None
) -> tuple[Culprit, ...]:
    """The culprits by clues that were not discounted. A name that the evidence does not hold is not blamed.

    Only in foreign logs (signal `logs`) may names come from the lines' own words.
    """
    foreign = evidence.signal is Signal.LOGS
    best = weighed.telling[0].weight if weighed.telling else 0.0
    strong = tuple(clue for clue in weighed.telling if clue.weight >= BLAME_SHARE * best)
    homes = {rank: pod.node for pod in evidence.pods for rank in pod.ranks}
    if not foreign:
        names = _names(evidence)
        own = (_here(one, names, homes) for one in _direct(strong, NodePlaces(homes)))
        blamed = _sorted([*(one for one in own if one != NOBODY), *_as_culprits(strong, names, homes)])
        # Of an unknown cause the one thing known is who failed first.
        unknown = weighed.fault_class is FaultClass.UNKNOWN and gang.first is not None
        return blamed or (((gang.node, gang.first.rank),) if unknown and gang.first is not None else ())
    policy = POLICY[weighed.fault_class]
    if policy.blames_nobody:
        return ()
    places = places or NodePlaces()
    found = _direct(strong, places)
    if not any(rank is None for _, rank in found):
        found += _accused(strong, places)
    if not found and weighed.fault_class is FaultClass.UNKNOWN:
        found += _accused(tuple(clue for clue in weighed.others if clue.blames == "peer"), places)
    if not found and policy.strikes_few_nodes:
        found += _few(strong, places)
    if not found and gang.alone is not None and any(c.blames == "node" and c.rank == gang.alone for c in strong):
        found.append((places.homes.get(gang.alone, ""), gang.alone))
    if not found and gang.alone is not None and _own_doing(weighed, gang, strong, places):
        found.append((places.homes.get(gang.alone, ""), gang.alone))
    return _sorted(found or _where(strong, places))


def _own_doing(weighed: Weighing, gang: Gang, strong: Sequence[Clue], places: NodePlaces) -> bool:
    """Whether the one failed rank is worth naming: errors of the code strike all, and one of them reports first."""
    if any(clue.blames == "rank" and clue.rank is None for clue in strong):
        return True
    if weighed.fault_class is FaultClass.USER_CODE:
        return gang.others and not any(_LOADING in clue.text for clue in weighed.telling)
    worth = POLICY[weighed.fault_class].lone_rank
    if worth == "where-others-suffered":
        return gang.others or gang.alone in places.homes
    return worth == "always"


def _where(clues: Iterable[Clue], places: NodePlaces) -> list[Culprit]:
    """The nodes of lines that would blame a rank but do not name it."""
    nodes = (places.node_of(clue) for clue in clues if clue.blames == "rank" and not places.ranks_of(clue))
    return [(node, None) for node in nodes if node]


def _direct(clues: Sequence[Clue], places: NodePlaces) -> list[Culprit]:
    """Those whose own lines, ends or numbers accuse them. Where some name their node, the others are not guessed."""
    own = [clue for clue in clues if clue.blames in ("node", "rank")]
    ranked = [clue for clue in own if clue.blames == "rank" and places.ranks_of(clue)]
    found: list[Culprit] = [(places.node_of(clue), rank) for clue in ranked for rank in places.ranks_of(clue)]
    nodes = [clue for clue in own if clue.blames == "node"]
    nodes_from_lines = {places.node_in_line(clue) for clue in nodes} - {""}
    guessed = (
        set[str]()
        if nodes_from_lines or any(clue.blames == "peer" for clue in clues)
        else set(map(places.node_of, nodes))
    )
    found += ((node, None) for node in sorted((nodes_from_lines or guessed) - {""}))
    return found


def _here(culprit: Culprit, names: dict[str, str], homes: dict[int, str]) -> Culprit:
    """A culprit by the incident's name of the node; without one where it knows no such node."""
    node, rank = culprit
    return names.get(node) or ("" if rank is None else homes.get(rank, "")), rank


def _names(evidence: Evidence) -> dict[str, str]:
    """The incident's nodes by every name that lines may have for them: their own, and their pods' hostnames."""
    pods = [pod for pod in evidence.pods if pod.node]
    names = {pod.name.rpartition("-")[0]: pod.node for pod in pods} | {pod.name: pod.node for pod in pods}
    nodes = {pod.node for pod in pods} | {node.name for node in evidence.nodes} | set(evidence.silent_nodes)
    nodes |= {line.node for line in evidence.lines} | {item.node for item in (*evidence.terminations, *evidence.gate)}
    return {name: node for name, node in (names | {node: node for node in nodes}).items() if name and node}


def _as_culprits(clues: Iterable[Clue], names: dict[str, str], homes: dict[int, str]) -> list[Culprit]:
    """Ranks and nodes that lines name, as far as the incident knows them."""
    found: list[Culprit] = []
    for clue in clues:
        if clue.blames == "peer" and clue.peer in names:
            found.append((names[clue.peer], None))
        elif clue.blames == "peer":
            found += ((homes.get(rank, ""), rank) for rank in _ranks(clue.peer))
    return found


def _accused(clues: Sequence[Clue], places: NodePlaces) -> list[Culprit]:
    """Ranks that lines name, and the node that most others name; two that name each other do not count."""
    found: list[Culprit] = []
    accusers: dict[str, set[str]] = {}
    for clue in clues:
        if clue.blames != "peer" or not clue.peer:
            continue
        ranks = _ranks(clue.peer)
        found += ((places.homes.get(rank, ""), rank) for rank in ranks)
        if not ranks:
            own = places.author_of(clue)
            who = own or (str(clue.rank) if clue.rank is not None else clue.file)
            for name in hosts(clue.peer):
                accusers.setdefault(places.node_at(name, own), set()).add(who)
    most = max((len(who) for who in accusers.values()), default=0)
    named = [node for node, who in accusers.items() if len(who) == most and who != {node}]
    together = len({frozenset(accusers[node]) for node in named}) == 1
    mutual = set(named) & set().union(*accusers.values())
    return found + ([(node, None) for node in named] if len(named) == 1 or (together and not mutual) else [])


def _few(clues: Sequence[Clue], places: NodePlaces) -> list[Culprit]:
    """The nodes whose kernels report it; else those, fewer than half of all, that alone say what is wrong."""
    own = [clue for clue in clues if not clue.echo and clue.blames == "nobody"]
    kernels = {clue.node for clue in own if clue.node and place_of(clue.file).source == "kernel"}
    here = kernels or {places.author_of(clue) for clue in own} - {""}
    known = len(places.nodes | here)
    known += len(places.ranks - places.homes.keys()) if kernels else 0
    few = len(here) * 2 < known or (kernels and len(here) * 2 == known)
    return [(node, None) for node in here] if few and (kernels or known >= FEWEST_PLACES) else []


def hosts(text: str) -> list[str]:
    """Slurm's `gpu-[03-05,9],cn7` as names; at most 64."""
    found: list[str] = []
    for hit in _HOSTLIST.finditer(text):
        if hit["numbers"] is None:
            found.append(hit["stem"])
            continue
        for part in re.findall(r"\d{1,6}(?:-\d{1,6})?", hit["numbers"]):
            first, _, last = part.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + 64) + 1)
            found += (f"{hit['stem']}{number:0{len(first)}d}" for number in numbers)
    return found[:64]


def _ranks(peer: str) -> list[int]:
    """Ranks that a line names: `3`, `1, 2`, `/job:worker/replica:0/task:5`; none where it names a host."""
    if tasks := _TASK.findall(peer):
        return [int(word) for word in tasks]
    words = [word for word in re.split(r"[,\s]+", peer) if word]
    return [int(word) for word in words] if words and all(word.isdigit() for word in words) else []


def _sorted(found: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """Each once; a rank whose whole node is blamed is part of it."""
    once = set(found)
    whole = {node for node, rank in once if rank is None}
    housed = {rank for node, rank in once if node}
    kept = (item for item in once if item[1] is None or (item[0] not in whole and (item[0] or item[1] not in housed)))
    return tuple(sorted(kept, key=lambda item: (item[0], -1 if item[1] is None else item[1])))


def scene(weighed: Weighing, gang: Gang) -> tuple[str, ...]:
    """Where it happened: the nodes of the strongest clues, else that of the first failing rank."""
    best = weighed.telling[0].weight if weighed.telling else 0.0
    places = {clue.node for clue in weighed.telling if clue.node and clue.weight >= BLAME_SHARE * best}
    if not places and gang.node:
        places = {gang.node}
    return tuple(sorted(places))


def unfit(evidence: Evidence) -> tuple[str, ...]:
    """Nodes that pods must leave, cordoned ones, and those that did not pass the gate, unless most of them did not."""
    leaving = {pod.node for pod in evidence.pods if pod.node and pod.disrupted}
    leaving |= {node.name for node in evidence.nodes if node.cordoned}
    bad = {report.node for report in evidence.gate if report.verdict != VerdictWord.PASS}
    return tuple(sorted(leaving | (bad if len(bad) * 2 <= len(evidence.gate) else set())))


def suspect(weighed: Weighing, culprits: Sequence[tuple[str, int | None]]) -> bool:
    """True where a node is to blame."""
    blamed = any(clue.blames in ("node", "peer") for clue in weighed.telling)
    return blamed and any(node for node, rank in culprits if rank is None)


def stuck_at(step: int | None, past: Sequence[PastIncident]) -> list[PastIncident]:
    """Failures at this step that the run has not got past since; `past`: oldest first."""
    found: list[PastIncident] = []
    for item in past:
        reached = item.last_step if item.last_step is not None else item.step
        if step is not None and reached is not None and reached > step:
            found.clear()
        elif item.failed_at(step):
            found.append(item)
    return found


def _no_chance(equal: Sequence[PastIncident], gang: int) -> bool:
    """Whether equal failures at one step are more than what chance brings so many nodes.

    Where it strikes within a step of every thousandth attempt, one coincidence proves nothing; and a start without any
    step takes so long that none does.
    """
    strikes = -math.expm1(-gang * PRIOR_RATE * LONG_STEP_SECONDS / 86400.0)
    return bool(equal) if strikes <= RARE else sum(item.last_step is not None for item in equal) > 1


LONG_STEP_SECONDS = 60.0
"""How long a step, or the time between two that are reported, may well take."""
RARE = 1e-3
SAME_NODE = "history-same-node"
OTHER_NODES = "history-other-nodes"


def memories(
    fault_class: FaultClass,
    rule: str,
    fingerprint: str,
    step: int | None,
    nodes: Sequence[str],
    gang: int,
    past: Sequence[PastIncident],
) -> tuple[Clue, ...]:
    """Clues from the past, for a failure whose class alone does not say who is to blame.

    `rule`: the strongest one, which may know of several owners where its class does not. `gang`: nodes of the whole
    gang; where there is only one, "always on this node" says nothing. `past`: oldest first.
    """
    policy = policy_of(fault_class, rule)
    same = [item for item in past if fingerprint and item.fingerprint == fingerprint]
    if not policy.several_owners or not same:
        return ()
    before = {node for item in same for node in item.nodes}
    here = set(nodes)
    equal = [item for item in stuck_at(step, past) if item.fingerprint == fingerprint]
    same_step = step is not None and _no_chance(equal, gang)
    if policy.may_be_code and here and before and not here & before and same_step:
        text = f"the same failure at step {step} on other nodes before ({', '.join(sorted(before)[:4])})"
        return (Clue(FaultClass.USER_CODE, 0.85, text, OTHER_NODES, "code"),)
    if len(here) == 1 and before == here and gang > 1:
        node = next(iter(here))
        text = f"the same failure {len(same) + 1} times, always on {node}"
        kind = FaultClass.GPU_DRIVER if fault_class is FaultClass.USER_CODE else fault_class
        return (Clue(kind, 0.6, text, SAME_NODE, "node", node=node),)
    return ()
