"""Resumption: what was asked for, what was found, and where the training then began.

A first run that finds no checkpoint is healthy, and so is one that begins with pretrained weights. So a message alone
says little. What tells is that a later step was asked for, that it was no first start, or that a checkpoint lies where
nobody looked for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.clues import Clue
from flows.decisions.steps import steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

ASKED_WEIGHT = 0.75
"""A later step or epoch was to be resumed, and what follows is the first of all."""
LOADED_WEIGHT = 0.5
"""A checkpoint of a later step was loaded, nobody spoke of fine-tuning, and what follows is the first step of all."""
NOT_FOUND_WEIGHT = 0.5
"""The message that there is no checkpoint, and nothing of a healthy first run after it."""
OVERLOOKED_WEIGHT = 0.8
"""The message, and a checkpoint that is there, or a start that is known to be a second one."""
BEGINNING_SHARE = 0.1
"""A step within this share of what had been reached is the beginning."""
FEWEST_STEPS = 10
"""A checkpoint of an earlier step may be of the very beginning."""

_NOT_FOUND = re.compile(
    r"(?i)could not find the metadata file|will not load any checkpoints and will start from random|"
    r"no (?:previous |existing |valid |usable |saved |resumable |latest )?checkpoints? (?:was |were )?"
    r"(?:found|available|exists?)\b|"
    r"(?:there (?:is|are|were) no|there is no last) (?:\w{1,12} )?checkpoints? (?:found|available)|"
    r"unable to find latest file at|did not find last_checkpoint|"
    r"(?:starting|training|start|begin\w*|init\w*) (?:training |the model )?(?:over |again )?from scratch|"
    r"checkpoint \S{1,200} (?:does not exist|not found)\b.{0,60}(?:scratch|random|ignor|skip|new|start)"
)
_MAY_SAY = ("heckpoint", "HECKPOINT", "cratch", "metadata file", "from random", "latest file")
_NO_REPORT = re.compile(r"(?i)^\s*(?:--|usage|help)|from scratch (?:is|or|can|if)\b|raise |error:")
_AGAIN = re.compile(
    r"(?i)\b(?:(?:auto-?)?requeu\w{1,4}|DUE TO (?:JOB REQUEUE|PREEMPTION|TIME LIMIT|NODE FAILURE)|restarting|"
    r"restart(?:ed|s)? (?:count|training|worker|the|job|attempt|[1-9])|restart_count[=: ]{1,2}[1-9]|"
    r"resum(?:ed|ing) (?:from|training|run)\b(?!.{0,20}(?:none|false|null))|attempt[ _#:=]{1,2}[2-9])"
)
_KEPT = re.compile(r"(?i)(?:global_?step|iter|step|checkpoint|epoch|model)[-_=]?0{0,9}[1-9]\d{0,8}")
_LISTED = re.compile(r"^(?:[-d][rwxst-]{9}.{0,80} )?\S{1,300}$")
_SAVED = re.compile(r"(?i)\b(?:saved|successfully saved|saving) (?:a )?(?:checkpoint|model|state)")
_AT = r"(?P<at>[1-9]\d{0,8})"
_ASKED = (
    re.compile(
        r"(?i)\bresum\w{0,4}\b[^|]{0,160}?(?P<unit>epoch|step|iteration|iter|checkpoint)s?[-_ =:#]{0,3}0{0,9}" + _AT
    ),
    re.compile(r"(?i)\bcontinuing training from (?P<unit>epoch|global step|step|iteration) " + _AT),
    re.compile(r"(?i)\bloaded checkpoint .{1,300}\((?P<unit>epoch) " + _AT),
    re.compile(
        r"(?i)\b(?:successfully loaded|loading|loaded) checkpoint from .{1,300} at (?P<unit>iteration|step) " + _AT
    ),
    re.compile(
        r"(?i)\b(?:loading|loaded|restor\w{2,4}) (?:the )?(?:optimizer|(?:lr_?)?scheduler)(?: states?)? from \S{0,300}?"
        r"(?P<unit>model|checkpoint|iteration|iter|step|epoch)[-_]?0{0,9}" + _AT
    ),
    re.compile(r"(?i)--resume\S{0,40}[= ]['\"]?\S{1,300}?(?P<unit>epoch|iteration|iter|step)[-_=]?0{0,9}" + _AT),
)
"""A resumption was meant: by its own words, or because trainers print this of whole states alone."""
_LOADED = re.compile(
    r"(?i)--(?:checkpoint|load|ckpt\S{0,20}|restore\S{0,20})[= ]['\"]?\S{1,300}?"
    r"(?P<unit>epoch|iteration|iter|step)[-_=]?0{0,9}" + _AT
)
_WEIGHTS = re.compile(
    r"(?i)\bload(?:ing|ed) (?:checkpoint |model |weights )?from \S{0,300}?"
    r"(?P<unit>model|checkpoint|iter|step|epoch)[-_]0{0,9}" + _AT + r"(?![\w-])"
)
"""Speaks of a resumption only where the command asked for one: pretrained weights have numbers in their names, too."""
_RESUME = re.compile(r"(?i)\s--(?:auto[-_])?resume\b(?!=(?:false|no|0))|\bresume['\"]?[:=] ?true\b")
_FINE_TUNING = re.compile(r"(?i)pre-?train|fine-?tun|init_from|weights_only|backbone|lora|adapter")
_CUES = ("esum", "heckpoint", "ontinuing", "--", "oad")
_EPOCH = re.compile(
    r"(?i)(?:^|[\s|\[(])(?:train data for |begin(?:ning)? |start(?:ing)? |training )?epoch[ :=#\[]{1,3}"
    r"(?P<epoch>\d{1,6})\b"
)
_LOADS = re.compile(r"(?i)resum|restor|check ?point|\bsav(?:ed|ing)\b")


@dataclass(frozen=True)
class _Wish:
    """A checkpoint that was to be gone on from."""

    unit: str
    """`step` or `epoch`."""
    at: int
    line: LogLine
    weight: float


def says_none(line: LogLine) -> bool:
    """Does a line say that there is no checkpoint?"""
    return any(word in line.text for word in _MAY_SAY) and _NOT_FOUND.search(line.text[:1000]) is not None


def second_start(line: LogLine) -> bool:
    """Does a line say that this is not the first start?"""
    return _AGAIN.search(line.text[:1000]) is not None


def asked(lines: Sequence[LogLine]) -> Clue | None:
    """A checkpoint of a later step or epoch was asked for, and what follows is the first step or epoch."""
    wish: _Wish | None = None
    resumes = any(_RESUME.search(line.text[:2000]) for line in lines if "esume" in line.text)
    for line in lines:
        begun = _begun(line, wish.unit) if wish is not None else None
        if wish is not None and begun is not None:
            tuned = wish.weight < ASKED_WEIGHT and any(_FINE_TUNING.search(line.text[:1000]) for line in lines)
            return None if tuned else _judge(wish, begun, line)
        wish = _wish(line, resumes) or wish
    return None


def _wish(line: LogLine, resumes: bool) -> _Wish | None:
    text = line.text[:2000]
    if not any(cue in text for cue in _CUES) or _FINE_TUNING.search(text):
        return None
    hit = next((hit for pattern in (*_ASKED, *((_WEIGHTS,) if resumes else ())) if (hit := pattern.search(text))), None)
    weight = ASKED_WEIGHT
    if hit is None:
        hit, weight = _LOADED.search(text), LOADED_WEIGHT
    if hit is None:
        return None
    return _Wish("epoch" if hit["unit"].lower() == "epoch" else "step", int(hit["at"]), line, weight)


def _begun(line: LogLine, unit: str) -> int | None:
    """The epoch or step at which the line shows the training."""
    found = steps((line,))
    if unit == "epoch":
        if found and found[0].epoch is not None:
            return int(found[0].epoch)
        hit = _EPOCH.search(line.text[:400]) if not _LOADS.search(line.text[:400]) else None
        return int(hit["epoch"]) if hit is not None else None
    if found and found[0].step is not None and not (found[0].epoch or 0) > 1:
        return found[0].step
    return None


def _judge(wish: _Wish, begun: int, line: LogLine) -> Clue | None:
    if wish.unit == "epoch":
        beginning = begun <= 1 < wish.at
    else:
        beginning = begun <= BEGINNING_SHARE * wish.at and wish.at >= FEWEST_STEPS
    text = f"{wish.unit} {begun} follows `{wish.line.text.strip()[:200]}`"
    return _clue(line, wish.weight, text, "resumed-at-the-beginning") if beginning else None


def not_found(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """The message that there is no checkpoint, where it is not that of a healthy first run."""
    said = [line for line in lines if says_none(line) and not _NO_REPORT.search(line.text[:1000])]
    if not said:
        return
    first = said[0]
    again = any(second_start(line) for line in lines)
    kept = any(_kept(line, first) for line in lines)
    goes_on = any(found.line.line > first.line or found.line.file != first.file for found in steps(lines))
    if again or kept or not goes_on:
        weight = OVERLOOKED_WEIGHT if again or kept else NOT_FOUND_WEIGHT
        yield _clue(first, weight, first.text.strip(), "checkpoint-not-found")


def _kept(line: LogLine, said: LogLine) -> bool:
    """A checkpoint that was saved before the message, or stands in a listing of files."""
    text = line.text.strip()[:1000]
    if _SAVED.search(text):
        earlier = line.at is not None and said.at is not None and line.at < said.at
        return earlier if line.file != said.file else line.line < said.line
    return line.file != said.file and "/" in text and bool(_LISTED.match(text) and _KEPT.search(text))


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    return Clue(FaultClass.STARTED_OVER, weight, text[:400], rule, node=line.node, supersedes=("unknown",),
                file=line.file, line=line.line)  # fmt: skip
