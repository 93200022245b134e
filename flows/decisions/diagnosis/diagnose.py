"""From evidence to a diagnosis: what it is, who is to blame, who only suffered, and how surely.

`unopposed` raises the confidence of a diagnosis from log files alone where nothing in them contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.decisions.diagnosis.blame import culprits_of, memories, scene, suspect, unfit
from flows.decisions.diagnosis.clues import Clue, Weighing, weigh
from flows.decisions.diagnosis.exits import Exit, exits, terminations, with_logged_ends, with_passed_notices
from flows.decisions.diagnosis.gang import Gang, failing, first_to_tell, read_gang
from flows.decisions.diagnosis.healthy import or_healthy
from flows.decisions.diagnosis.lines import gather
from flows.decisions.diagnosis.observers.registry import observe
from flows.decisions.diagnosis.places import NodePlaces, read_places
from flows.decisions.diagnosis.readings import readings
from flows.decisions.diagnosis.witnesses import exit_clue, memory_untold, testimony
from flows.decisions.policy import policy_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.programs.runtime.last_words import without_volatile_parts

UNOPPOSED_ODDS = 5.0
"""A weight is the probability where one line alone is known. Whole logs are more: another cause would have left its own
words in them. Where no clue speaks for another class, the odds are about five times as good. The factor is measured: of
100 logs that the rules had not been written for and that a line told of, 98 were right, of the unsure ones among them
14 of 15. With it stated confidence and accuracy agree on the corpus's development part
(`tests/corpus/test_corpus.py`)."""
MOST = 0.99

MAX_EVIDENCE = 12
"""Clues shown to people."""


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
    """The diagnosis of an incident. Total: whatever is missing, there is an answer, at worst `unknown`.

    Of log files alone (signal `logs`) the answer is `none` where nothing in them speaks of a failure.
    """
    evidence, lines, ends = _read(evidence)
    clues = (*testimony(evidence), *map(exit_clue, ends), *readings(evidence, lines), *observe(lines))
    clues = (*clues, *memory_untold(clues))
    gang = read_gang(evidence.terminations or terminations(ends, failing(clues, ends)), clues)
    weighed = weigh(clues, gang.victims, gang.failed_at)
    if evidence.signal is Signal.LOGS:
        weighed = unopposed(or_healthy(weighed, lines))
    nodes = scene(weighed, gang)
    fingerprint, step = _fingerprint(weighed, gang), _step(evidence, gang)
    size = len({pod.node for pod in evidence.pods if pod.node and pod.ranks})
    past_clues = memories(weighed.fault_class, _rule(weighed), fingerprint, step, nodes, size, evidence.past)
    if past_clues:
        weighed = weigh((*clues, *past_clues), gang.victims, gang.failed_at)
    culprits = culprits_of(evidence, weighed, gang, _places(evidence, lines, ends))
    strongest = weighed.telling[0] if weighed.telling else None
    policy = policy_of(weighed.fault_class, _rule(weighed))
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
        first_failing_rank=_first_failing_rank(evidence, gang, weighed, lines),
        nodes=nodes,
        avoid=unfit(evidence),
        node_suspect=suspect(weighed, culprits),
        retry_helps=policy.retry_helps and not policy.needs_change,
        advice=(strongest.advice if strongest else "") or policy.advice,
        why=_why(weighed, gang, evidence),
    )


def _first_failing_rank(evidence: Evidence, gang: Gang, weighed: Weighing, lines: tuple[LogLine, ...]) -> int | None:
    """By the ends of ranks; of logs that tell none, by who speaks first of what failed, or who alone is spoken of."""
    if gang.first is not None:
        return gang.first.rank
    if evidence.signal is not Signal.LOGS or weighed.fault_class is FaultClass.NONE:
        return None
    mine = [clue for clue in (*weighed.telling, *weighed.others) if clue.fault_class is weighed.fault_class]
    return first_to_tell(weighed.telling or mine, lines)


def _rule(weighed: Weighing) -> str:
    """The rule that says most of what to do: the strongest one, of a failure without a class that of what is known."""
    untold = (clue for clue in weighed.others if clue.fault_class is weighed.fault_class is FaultClass.UNKNOWN)
    return next((clue.rule for clue in (*weighed.telling, *untold)), "")


def _read(evidence: Evidence) -> tuple[Evidence, tuple[LogLine, ...], tuple[Exit, ...]]:
    """The evidence with the ends found in logs, its lines, and ends that other launchers report in foreign logs."""
    lines = gather(evidence)
    ends = exits(lines) if evidence.signal is Signal.LOGS and not evidence.terminations else ()
    complete = (
        evidence if ends else with_logged_ends(evidence)
    )  # other launchers may have run inside ours, and know more
    complete = with_passed_notices(complete)
    return (evidence, lines, ends) if complete is evidence else (complete, gather(complete), ())


def _places(evidence: Evidence, lines: Sequence[LogLine], ends: Sequence[Exit]) -> NodePlaces | None:
    """What foreign logs say of nodes; None where the cluster itself does."""
    if evidence.signal is not Signal.LOGS:
        return None
    return read_places(lines, [(end.rank, end.node) for end in ends if end.rank is not None and not end.local])


def _fingerprint(weighed: Weighing, gang: Gang) -> str:
    if gang.fingerprint:
        return gang.fingerprint
    if not weighed.telling:
        return ""
    strongest = weighed.telling[0]
    text = strongest.text.replace(strongest.node, "") if strongest.node else strongest.text
    return f"{weighed.fault_class}:{strongest.rule}:{without_volatile_parts(text)[:160]}"


def _step(evidence: Evidence, gang: Gang) -> int | None:
    if evidence.first_nan_step is not None:
        return evidence.first_nan_step
    if gang.first is not None and gang.first.last_step is not None:
        return gang.first.last_step
    # A rank that reports no steps fails after those of its gang; what was known at the failure may be older.
    steps_seen = [
        step for record in evidence.terminations for step in (record.last_step, *(e.last_step for e in record.ranks))
    ]
    known = [step for step in (evidence.last_step, *steps_seen) if step is not None]
    # An attempt that failed before its first step stands where its checkpoint stands.
    return max(known) if known else evidence.resume_step


def _why(weighed: Weighing, gang: Gang, evidence: Evidence) -> str:
    if not weighed.telling:
        hint = f"; the nearest is {weighed.alternatives[0][0]}" if weighed.alternatives else ""
        return f"{_failed_first(gang, evidence)}the evidence is not enough for a diagnosis{hint}"
    strongest = f"{weighed.telling[0].text.strip()[:200]} [{weighed.telling[0].rule}]"
    past = next((clue.text for clue in weighed.telling if clue.rule.startswith("history-")), "")
    suffered = len(gang.victims)
    return "; ".join(
        part
        for part in (
            strongest,
            past if past not in strongest else "",
            f"{suffered} {'rank' if suffered == 1 else 'ranks'} only suffered" if suffered else "",
        )
        if part
    )


def _failed_first(gang: Gang, evidence: Evidence) -> str:
    """Who failed first and how, with the last it said; "" where the incident knows of no end."""
    first = gang.first
    record = next((item for item in evidence.terminations if first is not None and first in item.ranks), None)
    if first is None or record is None:
        return ""
    who = " ".join(
        part for part in (record.role, f"rank {first.rank}", f"on {record.node}" if record.node else "") if part
    )
    how = f"by signal {first.signal}" if first.signal is not None else f"with exit code {first.exit_code}"
    said = next((text.strip()[:200] for text in reversed(first.last_lines) if text.strip()), "")
    return f"{who} ended first, {how}" + (f", after it printed: {said}; " if said else "; ")


def unopposed(weighed: Weighing) -> Weighing:
    """The class with better odds where no clue speaks for another one."""
    if weighed.alternatives or not weighed.telling:
        return weighed
    odds = UNOPPOSED_ODDS * weighed.confidence / max(1.0 - weighed.confidence, 1e-9)
    return replace(weighed, confidence=round(min(odds / (1.0 + odds), MOST), 3))
