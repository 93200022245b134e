"""Clues from lines: which rules hold, and what a line is worth where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.exceptions import LineMatches, Raised, second_tier, tracebacks
from flows.decisions.diagnosis.gang import dying
from flows.decisions.diagnosis.healthy import speaks_of_trouble
from flows.decisions.diagnosis.lines import Level, by_stream, is_ours, level_of
from flows.decisions.diagnosis.matching import ALL, MAX_CHARACTERS, RuleMatch, match_line
from flows.decisions.diagnosis.places import agent_node, rank_of
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.retractions import SURVIVED_LINES, lessened, lived_with, standing, survived
from flows.decisions.diagnosis.steps import step_of
from flows.decisions.policy import POLICY, policy_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.wire import RankEnd

WINDOW_SECONDS = (900.0, 300.0)
"""Kernel lines and events count from so long before the detection until so long after it (attribution window of the
reliability study: 10 minutes before the end of the job to 5 after, and the time it takes to notice)."""
CONSEQUENCE_FACTOR = 0.3
"""What an exception is worth that was raised while another one was handled, or that a telling one was raised after."""
KILLED_FACTOR = 0.3
"""What an exception is worth that a rank printed before it was killed: it had survived it."""
OUTLIVED_FACTOR = 0.15
"""What a line is worth after which the same program went on training."""
TAKEN_BACK_FACTOR = 0.15
"""What a line is worth that says itself that the program goes on without it."""
ONLY_WARNED_FACTOR = 0.15
"""What a line is worth that its program calls a warning, of a part that it can do without."""
_LOUDEST = re.compile(r"\b[A-Z]{1,2}CCL WARN\b|\bWarning {2,40}\w|WARN\w{0,3}\b.{0,60}\b(?:ERROR|FATAL|CRITICAL)\b")
_TAKEN_BACK = re.compile(
    r"(?i)\b(?:ignor(?:ing|ed)|skip(?:ping|ped)(?!: failed)|"
    r"fall(?:ing|s)? ?back|us(?:ing|e) (?:the )?(?:defaults?|next|previous)|"
    r"(?:us(?:ing|e)|replaced) .{1,40} instead|replaced by|will be (?:ignored|skipped|disabled|used instead)|"
    r"continu(?:ing|e) without|proceeding without|not fatal|non-fatal|harmless|safely ignore)\b|"
    r"(?:;| -) using (?!\d)\w{2,30} "
)
_NOT_THERE = re.compile(
    r"(?i)\bNo such file or directory\b|\bFileNotFoundError\b|\bdoes(?: not|n't) exist\b|\bnot (?:be )?found\b|"
    r"\bno such (?:checkpoint|path|key)\b|\bNoSuchKey\b|\bis missing\b"
)
_FOLDERS_OF_CHECKPOINTS = frozenset({"checkpoints", "checkpoint", "ckpt", "ckpts"})
"""Megatron is given the folder of all: a file that is missing there is not a checkpoint's."""
_SAYS_TAKEN_BACK = Cue(of=(_TAKEN_BACK,))


def readings(evidence: Evidence, lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Clues from lines. Of chained exceptions the first is the cause, unless only a later one says what it was."""
    yield from _checkpoint_gone(evidence, lines)
    ends = {end.rank: (record.node, end) for record in evidence.terminations for end in record.ranks}
    streams = by_stream(line for line in lines if _in_window(line, evidence))
    for stream in streams:
        line_matches = _line_matches(stream)
        lived = (
            max(lived_with(stream, streams, line_matches[0][0].line), _quiet(stream, line_matches))
            if line_matches
            else 0
        )
        where = standing(stream if line_matches else ())
        for line, matches, factor, ends_traceback in line_matches:
            node, end = ends.get(line.rank, ("", None)) if line.rank is not None else ("", None)
            for match in matches:
                if match.rule.fault_class is not FaultClass.NONE:
                    clue = _reading(line, match, node, end, factor)
                    if not ends_traceback and _taken_back(clue, line):
                        clue = replace(clue, weight=clue.weight * TAKEN_BACK_FACTOR)
                    elif not ends_traceback and _only_warned(clue, line):
                        clue = replace(clue, weight=clue.weight * ONLY_WARNED_FACTOR)
                    yield lessened(_outlived(clue, line, lived), where)


def _checkpoint_gone(evidence: Evidence, lines: Sequence[LogLine]) -> Iterator[Clue]:
    """What we told the ranks to resume from is not there: the checkpoint is at fault, not what the profile says."""
    choice = evidence.choice
    if choice is None or not choice.resume_from or evidence.first_step is not None:
        return
    name = choice.resume_from.rstrip("/").rpartition("/")[2]
    if name in _FOLDERS_OF_CHECKPOINTS:
        return
    named = re.compile(rf"(?:^|[/\s'\"(=]){re.escape(name)}(?:$|[/\s'\"):,])")
    for line in lines:
        if _NOT_THERE.search(line.text) and named.search(line.text):
            yield Clue(FaultClass.CHECKPOINT_CORRUPT, 0.95, line.text[:400], "checkpoint-gone", rank=line.rank,
                       at=line.at, file=line.file, line=line.line,
                       supersedes=("config", "user_code", "storage"))  # fmt: skip
            return


def _quiet(
    stream: Sequence[LogLine], line_matches: Sequence[tuple[LogLine, tuple[RuleMatch, ...], float, bool]]
) -> int:
    """Number of the line up to which so many calm lines follow a report that it ended nothing; 0: too few do."""
    loud = [
        line for line, matches, _, _ in line_matches if any(x.rule.fault_class is not FaultClass.NONE for x in matches)
    ]
    last = loud[-1] if loud else line_matches[-1][0]
    if last.line == 0 or stream[-1].line - last.line < SURVIVED_LINES or last.source == "kernel":
        return 0
    complaints = (line.line for line in stream if line.line > last.line and speaks_of_trouble(line))
    return survived(stream, {last.line, *complaints})


def _line_matches(stream: Sequence[LogLine]) -> list[tuple[LogLine, tuple[RuleMatch, ...], float, bool]]:
    """Lines that say something: rules, what chained exceptions leave of their weight, does a traceback end there?"""
    raised = {id(item.line): item for item in tracebacks([line for line in stream if not is_ours(line)])}
    index = ALL.within(line.text[:MAX_CHARACTERS] for line in stream)
    if not index.rules and not raised:
        return []
    begun = next((line.line for line in stream if step_of(line) is not None), 0)
    judgements: dict[int, tuple[LogLine, LineMatches]] = {}
    for line in stream:
        item = raised.get(id(line))
        matches = match_line(line.text, line.source, index, noise=item is not None)
        if matches or item is not None:
            judgements[id(line)] = (line, second_tier(matches, line.text, item, 0 < begun < line.line))
    factors = _chained([item for item in raised.values() if item.consequence], judgements)
    return [(line, found.matches, factors.get(key, 1.0), key in raised) for key, (line, found) in judgements.items()]


def _chained(consequences: Sequence[Raised], judgements: dict[int, tuple[LogLine, LineMatches]]) -> dict[int, float]:
    """Factors of the lines of chained exceptions: the consequence is discounted, or the cause where it says nothing."""
    factors: dict[int, float] = {}
    for item in consequences:
        line, cause = id(item.line), id(item.cause.line) if item.cause is not None else 0
        sure = judgements[cause][1].sure if cause in judgements else False
        if not cause:
            continue  # what came before it is not in the log: it is all that is known
        if not sure and line in judgements and judgements[line][1].sure:
            factors[cause] = CONSEQUENCE_FACTOR
        else:
            factors[line] = CONSEQUENCE_FACTOR
    return factors


def _reading(line: LogLine, match: RuleMatch, node: str, end: RankEnd | None, factor: float) -> Clue:
    rule = match.rule
    weight = rule.weight * factor
    if end is not None and end.signal in (9, 15) and rule.blames == "code" and not dying(end):
        weight *= KILLED_FACTOR
    return Clue(
        fault_class=rule.fault_class,
        weight=weight,
        text=line.text[:400],
        rule=rule.name,
        blames=rule.blames,
        node=line.node or node or agent_node(line.text),
        rank=rank_of(line) if rule.blames == "rank" else line.rank,
        at=line.at if line.at is not None else (end.at if end is not None else None),
        echo=rule.echo or factor < 1.0,
        wraps=rule.wraps,
        supersedes=rule.supersedes,
        advice=rule.advice,
        peer=match.peer,
        file=line.file,
        line=line.line,
    )


def _taken_back(clue: Clue, line: LogLine) -> bool:
    """True where the line itself says that the program does without what failed."""
    possible = POLICY[clue.fault_class].may_be_optional_part and _SAYS_TAKEN_BACK.holds(line.text)
    return possible and _TAKEN_BACK.search(line.text[:2000]) is not None


def _only_warned(clue: Clue, line: LogLine) -> bool:
    """True where the program itself calls it a mere warning. NCCL and Kubernetes know no louder word."""
    if not POLICY[clue.fault_class].may_be_optional_part or level_of(line.text) is not Level.WARNING:
        return False
    return line.source != "kernel" and _LOUDEST.search(line.text[:200]) is None


def _outlived(clue: Clue, line: LogLine, lived_until_line: int) -> Clue:
    outlasts = policy_of(clue.fault_class, clue.rule).outlasts_progress or line.source == "kernel"
    if outlasts or line.line == 0 or line.line >= lived_until_line:
        return clue
    return replace(clue, weight=clue.weight * OUTLIVED_FACTOR)


def _in_window(line: LogLine, evidence: Evidence) -> bool:
    if line.at is None or line.source not in ("kernel", "event") or evidence.signal is Signal.LOGS:
        return True
    before, after = WINDOW_SECONDS
    return evidence.detected_at - before <= line.at <= evidence.detected_at + after
