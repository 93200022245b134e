"""Resumption: the message that there is no checkpoint, where one should have been found.

A first run that finds no checkpoint is healthy. So a message alone says little. What tells is that it was no first
start, or that a checkpoint lies where nobody looked for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.going_on import went_on_until
from flows.decisions.steps import steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

NOT_FOUND_WEIGHT = 0.5
"""The message that there is no checkpoint, and nothing of a healthy first run after it."""
OVERLOOKED_WEIGHT = 0.8
"""The message, and a checkpoint that is there, or a start that is known to be a second one."""

_NOT_FOUND = re.compile(
    r"(?i)could not find the metadata file|will not load any checkpoints and will start from random|"
    r"no (?:previous |existing |valid |usable |saved |resumable |latest )?checkpoints? (?:was |were )?"
    r"(?:found|available|exists?)\b|"
    r"(?:there (?:is|are|were) no|there is no last) (?:\w{1,12} )?checkpoints? (?:found|available)|"
    r"looking for (?:a |the |latest |last )*checkpoints? .{0,200}\b(?:none|nothing|not found)\b|"
    r"unable to find latest file at|did not find last_checkpoint|"
    r"(?:starting|training|start|begin\w*|init\w*) (?:training |the model )?(?:over |again )?from scratch|"
    r"checkpoint \S{1,200} (?:does not exist|not found)\b.{0,60}(?:scratch|random|ignor|skip|new|start)"
)
_MAY_SAY = ("heckpoint", "HECKPOINT", "cratch", "metadata file", "from random", "latest file")
_SAYS_NONE = Cue(
    "metadata file", "start from random", "no checkpoint", "no previous checkpoint", "no existing checkpoint",
    "no valid checkpoint", "no usable checkpoint", "no saved checkpoint", "no resumable checkpoint",
    "no latest checkpoint", "there is no", "there are no", "there were no", "looking for", "unable to find latest",
    "did not find last", "from scratch", "does not exist", "not found", of=(_NOT_FOUND,),
)  # fmt: skip
_NO_REPORT = re.compile(r"(?i)^\s*(?:--|usage|help)|from scratch (?:is|or|can|if)\b|raise |error:")
_AGAIN = re.compile(
    r"(?i)\b(?:(?:auto-?)?requeu\w{1,4}|DUE TO (?:JOB REQUEUE|PREEMPTION|TIME LIMIT|NODE FAILURE)|restarting|"
    r"re-?launch(?:ed|ing)\b|re-?scheduled\b|recover(?:ed|ing) from|"
    r"restart(?:ed|s)? (?:count|training|worker|the|job|attempt|[1-9])|restart_count[=: ]{1,2}[1-9]|"
    r"resum(?:ed|ing) (?:from|training|run)\b(?!.{0,20}(?:none|false|null))|attempt[ _#:=]{1,2}[2-9])"
)
_KEPT = re.compile(r"(?i)(?:global_?step|iter|step|checkpoint|epoch|model)[-_=]?0{0,9}[1-9]\d{0,8}")
_LISTED = re.compile(r"^(?:[-d][rwxst-]{9}.{0,80} )?\S{1,300}$")
_PATH = re.compile(r"[\w.@-]{0,80}/[\w./@-]{1,200}")
_SAVED = re.compile(r"(?i)\b(?:saved|successfully saved|saving) (?:a )?(?:checkpoint|model|state)")


def says_none(line: LogLine) -> bool:
    """Does a line say that there is no checkpoint?"""
    return any(word in line.text for word in _MAY_SAY) and _NOT_FOUND.search(line.text[:1000]) is not None


def second_start(line: LogLine) -> bool:
    """Does a line say that this is not the first start?"""
    return _AGAIN.search(line.text[:1000]) is not None


def not_found(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """The message that there is no checkpoint, where it is not that of a healthy first run."""
    said = [line for line in _SAYS_NONE.among(lines) if says_none(line) and not _NO_REPORT.search(line.text[:1000])]
    if not said:
        return
    first = said[0]
    again = any(second_start(line) for line in lines)
    kept = any(_kept(line, first) for line in lines)
    goes_on = any(found.line.line > first.line or found.line.file != first.file for found in steps(lines))
    goes_on = goes_on or went_on_until([line for line in lines if line.file == first.file], first.line) > 0
    if again or kept or not goes_on:
        weight = OVERLOOKED_WEIGHT if again or kept else NOT_FOUND_WEIGHT
        yield _clue(first, weight, first.text.strip(), "checkpoint-not-found")


def _kept(line: LogLine, said: LogLine) -> bool:
    """A checkpoint that was saved before the message, or stands in a listing of files."""
    text = line.text.strip()[:1000]
    if _SAVED.search(text):
        if not _same_place(text, said.text):
            return False
        earlier = line.at is not None and said.at is not None and line.at < said.at
        return earlier if line.file != said.file else line.line < said.line
    return line.file != said.file and "/" in text and bool(_LISTED.match(text) and _KEPT.search(text))


def _same_place(saved: str, missed: str) -> bool:
    """False where both name files, and no folder is the same: another program's checkpoints."""
    first, second = _folders(saved), _folders(missed)
    return not first or not second or bool(first & second)


def _folders(text: str) -> set[str]:
    return {part for path in _PATH.findall(text[:1000]) for part in path.split("/")[:-1]} - {"", ".", ".."}


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    return Clue(FaultClass.STARTED_OVER, weight, text[:400], rule, node=line.node, supersedes=("unknown",),
                file=line.file, line=line.line)  # fmt: skip
