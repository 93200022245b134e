"""Training that begins again: steps and loss fall back to the beginning, or a resume ends at step 0."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.steps import Step, steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

REWOUND_WEIGHT = 0.85
"""Steps and loss both went back to where an untrained model stands."""
ASKED_WEIGHT = 0.72
"""A resume was asked for, and the program says that it begins at 0."""
BEGINNING_SHARE = 0.02
"""So small a share of the steps reached counts as the beginning."""
LOSS_FACTOR = 1.5
"""A loss so many times higher is that of an untrained model, not of a new epoch."""
CONFIRMING = 2
"""Steps that must follow the fall; one odd line proves nothing."""

_ZERO = re.compile(
    r"(?i)\bcontinuing training from (?:global step|step|epoch|iteration) 0\b|"
    r"\b(?:starting|start|begin(?:ning)?|initiali[sz]ing)\b.{0,40}\b"
    r"(?:from scratch|from (?:step|iteration|epoch) 0\b|at (?:step|iteration) 0\b)"
)
_ASKED = re.compile(
    r"(?i)\bresum(?:e|ing|ed)\b.{0,160}\b(?:checkpoint|step|iter(?:ation)?|epoch)s?[-_ =:]{0,3}0{0,9}[1-9]\d{0,8}\b|"
    r"\brequested (?:restore|resume)(?: at| from)? step [1-9]|\bresume ?= ?true\b|--resume[= ]\S*\d|"
    r"\bafter restart [1-9]"
)
NAMED_WEIGHT = 0.75
"""A later place is named, or was reached, by the same run that then shows the first one."""
FEWEST_OF_TRIAL = 10
_KEPT = re.compile(
    r"(?i)\b(?:snapshot|check_?point|ckpt|resum\w{1,4}|restor\w{1,4}|load\w{0,3}|start(?:ing)? from|last_?iter|"
    r"init_?from)"
    r"[^\n]{0,80}?(?<![\d.])(?P<at>[1-9]\d{1,8})(?![\d.]*\d)"
)
_AGAIN = re.compile(
    r"(?i)\bre-?(?:start|launch|submit|queue|spawn|sum|stor|cover|load|tr(?:y|ies))|\bfail|\bcrash|\bkill|\bpreempt|"
    r"\babort|\bterminat|\bsignal|\bexit(?:ed|code)|\battempt|\bfrom scratch|\berror\b|\bdied\b|\blost\b|\bgoing on\b|"
    r"\bno check_?points?\b|\bcheckpoint .{0,40}(?:not|missing)|\bagain\b|\belastic|\bworld[_ ]size"
)
"""What tells that the same run began again."""
_SAVES = re.compile(r"(?i)\bsav(?:e|ed|ing)\b|\bwr(?:ite|iting|ote|itten)\b")
_TRIAL = re.compile(r"\[pid=(?P<pid>\d{1,9})\], (?P<seconds>\d{1,9}) s, (?P<iter>\d{1,9}) iter\b")
_SAYS_TRIAL = Cue("[pid=", of=(_TRIAL,))
_SAYS_ZERO = Cue("continuing training from", "from scratch", "from step", "from iteration", "from epoch", "at step",
                 "at iteration", of=(_ZERO,))  # fmt: skip
_SAYS_ASKED = Cue("resum", "requested restore", "after restart", of=(_ASKED,))


def rewinds(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """All signs, stream by stream."""
    for stream in by_stream(lines):
        seen = steps(stream)
        found = _fall(stream, seen) or _at_zero(stream) or _from_there(stream, seen) or _trials(stream)
        if found is not None:
            yield found


def _fall(stream: Sequence[LogLine], seen: Sequence[Step]) -> Clue | None:
    """Steps and loss at the beginning again. Two runs in one file look alike: what stands between must tell."""
    numbered = [item for item in seen if item.step is not None]
    for index in range(1, len(numbered) - CONFIRMING + 1):
        before, after = numbered[index - 1], numbered[index]
        reached, begun = before.step or 0, after.step or 0
        later = numbered[index : index + CONFIRMING]
        if reached < 50 or begun > max(1, BEGINNING_SHARE * reached) or before.loss is None:
            continue
        if not all(item.loss is not None and item.loss > LOSS_FACTOR * before.loss for item in later):
            continue
        between = [x.text[:2000] for x in stream if before.line.line < x.line < after.line.line and x.text.strip()]
        if not between or any(_AGAIN.search(text) for text in between):
            text = f"step {reached} with loss {before.loss:g}, then step {begun} with loss {after.loss:g}"
            return _clue(text, "steps-rewound", REWOUND_WEIGHT, after.line)
    return None


def _from_there(stream: Sequence[LogLine], seen: Sequence[Step]) -> Clue | None:
    """A step was reached, its checkpoint is named as what is gone on from, and the next step is the first of all."""
    numbered = [item for item in seen if item.step is not None]
    for before, after in itertools.pairwise(numbered):
        reached, begun = before.step or 0, after.step or 0
        if reached < 50 or begun > max(1, BEGINNING_SHARE * reached) or (after.epoch or 0) > (before.epoch or 0):
            continue
        between = (line.text[:2000] for line in stream if before.line.line < line.line < after.line.line)
        far = (int(hit["at"]) for text in between if not _SAVES.search(text) for hit in _KEPT.finditer(text))
        if any(0.5 * reached <= at <= reached for at in far):
            text = (
                f"step {reached}, then its checkpoint is taken up, then step {begun}: {after.line.text.strip()[:200]}"
            )
            return _clue(text, "step-after-checkpoint", NAMED_WEIGHT, after.line)
    return None


def _trials(stream: Sequence[LogLine]) -> Clue | None:
    """Ray Tune's lines of one trial: its time goes on, its iterations begin anew, in another process."""
    before: re.Match[str] | None = None
    for line in _SAYS_TRIAL.among(stream):
        hit = _TRIAL.search(line.text[:1000])
        if hit is None:
            continue
        if before is not None and hit["pid"] != before["pid"] and int(hit["seconds"]) >= int(before["seconds"]):
            reached, begun = int(before["iter"]), int(hit["iter"])
            if reached >= FEWEST_OF_TRIAL and begun <= max(1, BEGINNING_SHARE * reached):
                return _clue(
                    f"iteration {reached}, then {line.text.strip()[:200]}", "trial-rewound", NAMED_WEIGHT, line
                )
        before = hit
    return None


def _at_zero(stream: Sequence[LogLine]) -> Clue | None:
    asked = next((line for line in _SAYS_ASKED.among(stream) if _ASKED.search(line.text[:2000])), None)
    zero = next((line for line in _SAYS_ZERO.among(stream) if _ZERO.search(line.text[:2000])), None)
    if asked is None or zero is None or zero.line < asked.line:
        return None
    first = next((item.step for item in steps(stream) if item.line.line > zero.line and item.step is not None), 0)
    return _clue(zero.text[:400], "resume-at-zero", ASKED_WEIGHT, zero) if first <= CONFIRMING else None


def _clue(text: str, rule: str, weight: float, line: LogLine) -> Clue:
    return Clue(
        FaultClass.STARTED_OVER,
        weight,
        text,
        rule,
        "code",
        line.node,
        line.rank,
        line.at,
        file=line.file,
        line=line.line,
    )
