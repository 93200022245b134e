"""From evidence to a diagnosis: what it is, who is to blame, who only suffered, and how surely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.clues import Clue, Weighed, weigh
from flows.decisions.gang import Gang, dying, lagging, read_gang
from flows.decisions.history import memories
from flows.decisions.lines import by_stream, gather, tracebacks
from flows.decisions.matching import MAX_CHARACTERS, Match, likely, match_line, rule_named
from flows.decisions.treatment import TREATMENTS
from flows.decisions.witnesses import testimony
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.evidence import Evidence, LogLine
from workflows.programs.fingerprint import stable
from workflows.reports import RankEnd

MAX_EVIDENCE = 12
"""Clues shown to people."""
WINDOW_SECONDS = (900.0, 300.0)
"""Kernel lines and events count from so long before the detection until so long after it (attribution window of the
reliability study: 10 minutes before the end of the job to 5 after, and the time it takes to notice)."""
CONSEQUENCE_FACTOR = 0.3
"""What an exception is worth that was raised while another one was handled."""
KILLED_FACTOR = 0.3
"""What an exception is worth that a rank printed before it was killed: it had survived it."""
BLAME_SHARE = 0.5
"""Only clues with at least this share of the strongest one's weight blame anybody."""


@dataclass(frozen=True)
class Diagnosis:
    """What one incident is."""

    fault_class: FaultClass
    confidence: float
    """Probability, 0 to 1, that the class is right."""
    alternatives: tuple[tuple[FaultClass, float], ...] = ()
    culprits: tuple[tuple[str, int | None], ...] = ()
    """(node, rank) of those to blame; empty: nobody, or the code."""
    victims: tuple[int, ...] = ()
    """Ranks that ended because others did."""
    evidence: tuple[Clue, ...] = ()
    """What speaks for the class, strongest first, then what was discounted."""
    fingerprint: str = ""
    """Stable across attempts; "" where nothing is known that could be compared."""
    rule: str = ""
    """Name of the strongest rule."""
    step: int | None = None
    """Last step before it; after NaN: the first step without a number."""
    first_failing_rank: int | None = None
    nodes: tuple[str, ...] = ()
    """Where it happened, blamed or not."""
    avoid: tuple[str, ...] = ()
    """Nodes that the next attempt should not use, without blame: they are being drained, or did not pass the gate."""
    node_suspect: bool = False
    """True where a node is to blame."""
    retry_helps: bool = False
    advice: str = ""
    """What a person can do; "" where nothing is needed."""
    why: str = ""


def diagnose(evidence: Evidence) -> Diagnosis:
    """The diagnosis of an incident. Total: whatever is missing, there is an answer, at worst `unknown`."""
    lines = gather(evidence)
    clues = (*testimony(evidence), *_readings(evidence, lines), *lagging(lines))
    gang = read_gang(evidence.terminations, clues)
    weighed = weigh(clues, gang.victims, gang.failed_at)
    nodes = _scene(weighed, gang)
    fingerprint, step = _fingerprint(weighed, gang), _step(evidence, gang)
    size = len({pod.node for pod in evidence.pods if pod.node and pod.ranks})
    told = memories(weighed.fault_class, fingerprint, step, nodes, size, evidence.past)
    if told:
        weighed = weigh((*clues, *told), gang.victims, gang.failed_at)
    culprits = _culprits(evidence, weighed)
    strongest = weighed.telling[0] if weighed.telling else None
    treatment = TREATMENTS[weighed.fault_class]
    blamed = {rank for _, rank in culprits if rank is not None}
    return Diagnosis(
        fault_class=weighed.fault_class,
        confidence=weighed.confidence,
        alternatives=weighed.alternatives,
        culprits=culprits,
        victims=tuple(sorted(gang.victims - blamed)),
        evidence=(weighed.telling + weighed.others)[:MAX_EVIDENCE],
        fingerprint=fingerprint,
        rule=strongest.rule if strongest else "",
        step=step,
        first_failing_rank=gang.first.rank if gang.first else None,
        nodes=nodes,
        avoid=_unfit(evidence),
        node_suspect=_suspect(weighed, culprits),
        retry_helps=treatment.retry_helps,
        advice=(strongest.advice if strongest else "") or treatment.advice,
        why=_why(weighed, gang),
    )


def _readings(evidence: Evidence, lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Clues from lines; of chained exceptions the first is the cause."""
    ends = {end.rank: (record.node, end) for record in evidence.terminations for end in record.ranks}
    for stream in by_stream(line for line in lines if _in_window(line, evidence.detected_at)):
        raised = {id(item.line): item.consequence for item in tracebacks(stream)}
        rules = likely("\n".join(line.text[:MAX_CHARACTERS] for line in stream))
        for line in stream if rules or raised else ():
            node, end = ends.get(line.rank, ("", None)) if line.rank is not None else ("", None)
            for match in match_line(line.text, line.source, rules) or _nameless(id(line) in raised):
                if match.rule.fault_class is not FaultClass.NONE:
                    yield _reading(line, match, node, end, raised.get(id(line), False))


def _nameless(raised: bool) -> tuple[Match, ...]:
    """An exception whose name no rule knows is the user's own."""
    rule = rule_named("python-exception") if raised else None
    return () if rule is None else (Match(rule),)


def _reading(line: LogLine, match: Match, node: str, end: RankEnd | None, consequence: bool) -> Clue:
    rule = match.rule
    weight = rule.weight * (CONSEQUENCE_FACTOR if consequence else 1.0)
    if end is not None and end.signal in (9, 15) and rule.blames == "code" and not dying(end):
        weight *= KILLED_FACTOR
    return Clue(
        fault_class=rule.fault_class,
        weight=weight,
        text=line.text[:400],
        rule=rule.name,
        blames=rule.blames,
        node=line.node or node,
        rank=line.rank,
        at=line.at if line.at is not None else (end.at if end is not None else None),
        echo=rule.echo or consequence,
        supersedes=rule.supersedes,
        advice=rule.advice,
        peer=match.peer,
        file=line.file,
        line=line.line,
    )


def _in_window(line: LogLine, detected_at: float) -> bool:
    if line.at is None or line.source not in ("kernel", "event"):
        return True
    before, after = WINDOW_SECONDS
    return detected_at - before <= line.at <= detected_at + after


def _culprits(evidence: Evidence, weighed: Weighed) -> tuple[tuple[str, int | None], ...]:
    """Who is blamed by clues that were not discounted. A name that the evidence does not hold is not blamed."""
    found: dict[tuple[str, int | None], None] = {}
    known = {pod.node for pod in evidence.pods} | {node.name for node in evidence.nodes}
    places = {rank: pod.node for pod in evidence.pods for rank in pod.ranks}
    best = weighed.telling[0].weight if weighed.telling else 0.0
    for clue in weighed.telling:
        node = clue.node or (places.get(clue.rank, "") if clue.rank is not None else "")
        if clue.weight < BLAME_SHARE * best:
            continue
        if clue.blames == "node" and node:
            found[(node, None)] = None
        elif clue.blames == "rank" and clue.rank is not None:
            found[(node, clue.rank)] = None
        elif clue.blames == "peer":
            found.update(_named(clue.peer, known, places))
    whole = {node for node, rank in found if rank is None}
    kept = (item for item in found if item[1] is None or item[0] not in whole)
    return tuple(sorted(kept, key=lambda item: (item[0], -1 if item[1] is None else item[1])))


def _named(peer: str, known: set[str], places: dict[int, str]) -> dict[tuple[str, int | None], None]:
    if peer and peer in known:
        return {(peer, None): None}
    words = [word for word in peer.replace(",", " ").split() if word.isdigit()]
    return {(places.get(int(word), ""), int(word)): None for word in words}


def _scene(weighed: Weighed, gang: Gang) -> tuple[str, ...]:
    """Where it happened: the nodes of the strongest clues, else that of the first failing rank."""
    best = weighed.telling[0].weight if weighed.telling else 0.0
    places = {clue.node for clue in weighed.telling if clue.node and clue.weight >= BLAME_SHARE * best}
    if not places and gang.node:
        places = {gang.node}
    return tuple(sorted(places))


def _unfit(evidence: Evidence) -> tuple[str, ...]:
    """Nodes told to leave or cordoned, and those that did not pass the gate, unless most of them did not."""
    told = {pod.node for pod in evidence.pods if pod.node and pod.disrupted}
    told |= {node.name for node in evidence.nodes if node.unschedulable}
    bad = {report.node for report in evidence.gate if report.verdict != VerdictWord.PASS}
    return tuple(sorted(told | (bad if len(bad) * 2 <= len(evidence.gate) else set())))


def _suspect(weighed: Weighed, culprits: Sequence[tuple[str, int | None]]) -> bool:
    blamed = any(clue.blames in ("node", "peer") for clue in weighed.telling)
    return blamed and any(node for node, rank in culprits if rank is None)


def _fingerprint(weighed: Weighed, gang: Gang) -> str:
    if gang.fingerprint:
        return gang.fingerprint
    if not weighed.telling:
        return ""
    strongest = weighed.telling[0]
    text = strongest.text.replace(strongest.node, "") if strongest.node else strongest.text
    return f"{weighed.fault_class}:{strongest.rule}:{stable(text)[:160]}"


def _step(evidence: Evidence, gang: Gang) -> int | None:
    if evidence.first_nan_step is not None:
        return evidence.first_nan_step
    if gang.first is not None and gang.first.last_step is not None:
        return gang.first.last_step
    # An attempt that failed before its first step stands where its checkpoint stands.
    return evidence.last_step if evidence.last_step is not None else evidence.resume_step


def _why(weighed: Weighed, gang: Gang) -> str:
    if not weighed.telling:
        hint = f"; the nearest is {weighed.alternatives[0][0]}" if weighed.alternatives else ""
        return f"nothing in the evidence tells enough{hint}"
    said = f"{weighed.telling[0].text[:200]} [{weighed.telling[0].rule}]"
    past = next((clue.text for clue in weighed.telling if clue.rule.startswith("history-")), "")
    suffered = len(gang.victims)
    return "; ".join(
        part
        for part in (
            said,
            past if past not in said else "",
            f"{suffered} {'rank' if suffered == 1 else 'ranks'} only suffered" if suffered else "",
        )
        if part
    )
