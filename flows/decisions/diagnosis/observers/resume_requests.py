"""Resumes that were asked for and did not happen: a later checkpoint was loaded, or none was found.

What was loaded shows how far the training had come: by the words of the trainer, or by the numbers in the name of the
file; then it shows the first step of all. Pretrained weights have such numbers, too: words of fine-tuning, hubs and
teachers take the sign back.

A first run that finds no checkpoint is healthy, so the message that there is none says little alone. What counts is
that it was no first start, or that a checkpoint lies where the program did not look for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.observers.stalls import Position, position
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.retractions import went_on_until
from flows.decisions.diagnosis.steps import steps
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

ASKED_WEIGHT = 0.75
"""A later step or epoch was to be resumed, and what follows is the first of all."""
LOADED_WEIGHT = 0.5
"""A checkpoint of a later step was loaded, nobody spoke of fine-tuning, and what follows is the first step of all."""
BEGINNING_SHARE = 0.1
"""A step within this share of what had been reached is the beginning."""
FEWEST_STEPS = 10
"""A checkpoint of an earlier step may be of the very beginning."""
MOST_EPOCHS = 1000
"""No training counts more epochs: a larger number in the name of a checkpoint is a step."""

_UNSET = r"['\"]?\s?[:=] ?['\"]?(?:none|false|null|no\b|''|\"\"|0\b)"
_RESUMES = re.compile(
    rf"(?i)\b(?:auto[-_ ]?)?resum(?:e|es|ed|ing)(?![a-z])(?![\w ]{{0,20}}{_UNSET})|\brestor(?:e|ed|ing)\b|"
    r"\bcontinu(?:e|ed|ing) (?:training |run )?from\b|\breading model parameters from\b|"
    r"\brestart(?:ed|ing) (?:training )?from (?=epoch|step|iter)|--(?:auto[-_])?resume\S{0,40}[= ]|"
    r"\b(?:load\w{0,3}|restor\w{0,3}) (?:the )?(?:optimizer|(?:lr_?)?scheduler)|"
    r"\bload(?:ing|ed)(?: the)? checkpoint (?:from .{1,300} )?at (?:iteration|step) |"
    r"\bloaded (?:the )?checkpoint .{1,300}\((?:epoch|iteration|step|iter)\b|\bloaded successfully .{1,300}\(epoch|"
    r"\bfound (?:an? |the |last |latest |existing )*checkpoint|\bcheckpoint\b.{1,200} found\b(?<!not found)"
)
"""A resumption was meant: by its own words, or because trainers print this of whole states alone."""
_LOADS = re.compile(
    r"(?i)(?<![a-z])load(?:s|ed|ing)?(?![a-z]).{0,300}|"
    r"--(?!save)(?:\w{1,20}[-_])?(?:checkpoint|load|ckpt|restore)(?:[-_](?:path|file|dir|from|name))?[= ].{0,300}"
)
_RESUME_FLAG = re.compile(r"(?i)\s--(?:auto[-_])?resume\b(?!=(?:false|no|0))|\bresume['\"]?[:=] ?true\b")
_ANNOUNCES = re.compile(
    r"(?i)\b(?:resum(?:ing|ed)|continuing) (?:training|run)\b(?:.{0,12}\bfrom\b)|\bresum(?:ing|ed) from\b"
)
_WISHED = re.compile(
    r"(?i)\bif\b|\bcan be\b|\bwill resume\b|"
    r"\b(?:want|like|use|pass|set|need\w*) .{0,20}to resume\b|not found|no such|"
    r"(?:does not|doesn't) exist|:\s{0,2}none\b"
)
_UNITS = r"(?P<unit>epoch|iteration|iter|global[_ ]?step|step|update)"
_LATER = r"(?:['\"]?[-_ =:#.]{1,3}|)0{0,9}(?P<at>[1-9]\d{0,8})(?!\d|\.\d|[a-z%])"
_NAMED = (
    re.compile(
        r"(?i)(?<!max[_ ])(?<!num[_ ])(?<!per[_ ])(?<!save[_ ])(?<!total[_ ])(?<!warmup[_ ])(?<!eval[_ ])(?<!log[_ ])"
        rf"{_UNITS}{_LATER}"
    ),
    re.compile(rf"(?i)(?:resume|start|last)[-_ ]{_UNITS}s?{_LATER}"),
    re.compile(r"(?i)(?P<at>[1-9]\d{2,8})[_-](?P<unit>step|iter|iteration|epoch)s?(?![a-z])"),
    re.compile(
        r"(?i)(?P<unit>checkpoint|ckpt|chkpnt|snapshot|weights|model)s?(?:[-_./]|)0{0,9}(?P<at>[1-9]\d{0,8})"
        r"(?![\d-]*[a-z_\d])"
    ),
)
_FILE = re.compile(r"(?i)\.(?:pth?|ckpt|tar|h5|hdf5|keras|pkl|params|weights|bin)\b")
"""What ends the name of a file that was written once an epoch; directories with numbers are those of steps."""
_DATE = re.compile(r"20[0-3]\d(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])")
_FINE_TUNING = re.compile(
    r"(?i)pre-?train(?!\w*\.py)|(?:fine-?tun|init_from(?!\S{0,4}resume)|weights_only|backbone|\blora\b|adapter|teacher|"
    r"\b(?:sft|dpo|grpo|rlhf)\b|loading (?:weights|configuration) file|_name_or_path(?=.{0,4}/)|"
    r"distil|stage ?-?_?1\b|warm[- _]?start|load_weights_from|"
    r"reset[-_](?:optimizer|dataloader|meters|lr\w*|step|iter\w*|epoch))"
    rf"(?![\w-]{{0,24}}{_UNSET})"
)
_RESET = re.compile(r"(?i)reset[-_](?:optimizer|dataloader|meters)['\"]?(?:[:=] ?true|\s--|$)|finetune_from_model='")
"""A command that counts anew on purpose."""
_NOT_OWN = re.compile(
    r"(?i)https?://|detectron2://|torchvision://|modelzoo|open-mmlab|hugging ?face|\bhub\b|evaluat|inference|"
    r"\bvae\b|vocoder|tokenizer|reward|reference|deleting|removing|\bsaving\b|\bsaved (?:to|as|check|at|in)\b"
)
_SAYS_RESUMES = Cue(of=(_RESUMES,))
_SAYS_LOADS = Cue(of=(_LOADS,))
_SAYS_FLAG = Cue(of=(_RESUME_FLAG,))
_SAYS_TUNING = Cue(of=(_FINE_TUNING, _RESET))
_CUES = ("esum", "estart", "eading model", "heckpoint", "HECKPOINT", "ontinu", "--", "oad", "estor", "ound")


@dataclass(frozen=True)
class _Wish:
    """A checkpoint that was to be gone on from."""

    line: LogLine
    weight: float
    epoch: int | None = None
    step: int | None = None
    either: int | None = None
    """A number of a step, in the name of a checkpoint that has no unit."""
    filed: bool = False
    """It stands in the name of a file and may be that of an epoch as well."""

    @property
    def far(self) -> bool:
        """Does it name a place at all?"""
        return any(at is not None for at in (self.epoch, self.step, self.either))


def requested_resume(lines: Sequence[LogLine]) -> Clue | None:
    """A checkpoint of a later step or epoch was asked for, and what follows is the first step or epoch."""
    wish: _Wish | None = None
    resumes = any(_SAYS_FLAG.hits(lines, 2000))
    for line in lines:
        place = position(line) if wish is not None else None
        if wish is not None and place is not None:
            verdict = _judge(wish, place)
            if verdict is not None:
                tuning = _FINE_TUNING if wish.weight < ASKED_WEIGHT else _RESET
                if verdict and not any(tuning.search(line.text[:2000]) for line in _SAYS_TUNING.among(lines)):
                    return _clue(wish, place)
                wish = None
        new = _wish(line, resumes)
        wish = _later(wish, new) if new is not None else wish
    return None


def _later(old: _Wish | None, new: _Wish) -> _Wish:
    """What both lines say together: trainers name the file in one line and the place in the next."""
    if old is None:
        return new
    if not new.far:
        return replace(old, weight=max(old.weight, new.weight))
    return replace(
        new,
        weight=max(old.weight, new.weight),
        epoch=new.epoch or old.epoch,
        step=new.step or old.step,
        either=new.either or old.either,
        filed=new.filed or (old.filed and new.either is None),
    )


def _wish(line: LogLine, resumes: bool) -> _Wish | None:
    text = line.text[:2000]
    strong = _RESUMES.search(text) if _SAYS_RESUMES.holds(line.text) else None
    cue = strong or (_LOADS.search(text) if _SAYS_LOADS.holds(line.text) else None)
    if (
        cue is None
        or not any(word in text for word in _CUES)
        or _FINE_TUNING.search(text)
        or _NOT_OWN.search(text)
        or _WISHED.search(text)
    ):
        return None
    weight = ASKED_WEIGHT if strong or resumes else LOADED_WEIGHT
    wish = _Wish(line, weight)
    near = text[max(0, cue.start() - 60) : cue.end() + 240]
    for hit in (hit for pattern in _NAMED for hit in pattern.finditer(near)):
        wish = _with(wish, hit["unit"].lower(), hit["at"], _FILE.match(near, hit.end()) is not None)
    if wish.far:
        return wish
    return replace(wish, weight=LOADED_WEIGHT) if _ANNOUNCES.search(text) else None


def _with(wish: _Wish, unit: str, at: str, filed: bool) -> _Wish:
    if _DATE.fullmatch(at):
        return wish
    number = int(at)
    if unit == "epoch":
        return replace(wish, epoch=max(wish.epoch or 0, number))
    if unit in ("checkpoint", "ckpt", "chkpnt", "snapshot", "weights", "model"):
        known = wish.epoch is not None or wish.step is not None
        return wish if known else replace(wish, either=max(wish.either or 0, number), filed=filed)
    return replace(wish, step=max(wish.step or 0, number))


def _judge(wish: _Wish, place: Position) -> bool | None:
    """True for the beginning, False for a later place; None where the line does not say."""
    if not wish.far:
        return _first_of_all(place)
    first = place.epoch == 0 and place.within == 0
    if wish.epoch is not None and place.epoch is not None:
        return place.epoch <= 1 < wish.epoch
    at = wish.step or wish.either
    if place.header and at is not None:
        by_epochs = wish.step is None and wish.filed and FEWEST_STEPS <= at <= MOST_EPOCHS and place.epoch is not None
        if by_epochs and (place.epoch or 0) <= 1 and (place.within or 0) <= BEGINNING_SHARE * at:
            return True
        return True if first and at >= FEWEST_STEPS else (False if (place.epoch or 0) > 1 else None)
    if place.step is None or at is None or (place.total is not None and place.total < at):
        return None
    if (place.epoch or 0) > 1 or at < FEWEST_STEPS:
        return False
    if wish.step is None and at <= MOST_EPOCHS and place.epoch is None and place.step >= at:
        return False
    return place.step <= BEGINNING_SHARE * at


def _first_of_all(place: Position) -> bool | None:
    """Where the trainer said that it resumes, and not from where: only the first step or epoch of all says much."""
    if place.epoch is not None:
        return place.epoch == 0 and (place.within or 0) == 0 and (place.step or 0) <= 1
    return place.step == 0 if place.step is not None and not place.unit else None


def _clue(wish: _Wish, place: Position) -> Clue:
    weight = ASKED_WEIGHT if place.line.text.lstrip().startswith("Continuing training from") else wish.weight
    line = place.line
    text = f"`{line.text.strip()[:180]}` follows `{wish.line.text.strip()[:180]}`"
    return Clue(FaultClass.STARTED_OVER, weight, text[:400], "resumed-at-the-beginning", node=line.node,
                supersedes=("unknown",), file=line.file, line=line.line)  # fmt: skip


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
    messages = [line for line in _SAYS_NONE.among(lines) if says_none(line) and not _NO_REPORT.search(line.text[:1000])]
    if not messages:
        return
    first = messages[0]
    again = any(second_start(line) for line in lines)
    kept = any(_kept(line, first) for line in lines)
    goes_on = any(found.line.line > first.line or found.line.file != first.file for found in steps(lines))
    goes_on = goes_on or went_on_until([line for line in lines if line.file == first.file], first.line) > 0
    if again or kept or not goes_on:
        weight = OVERLOOKED_WEIGHT if again or kept else NOT_FOUND_WEIGHT
        yield Clue(FaultClass.STARTED_OVER, weight, first.text.strip()[:400], "checkpoint-not-found", node=first.node,
                   supersedes=("unknown",), file=first.file, line=first.line)  # fmt: skip


def _kept(line: LogLine, message: LogLine) -> bool:
    """A checkpoint that was saved before the message, or stands in a listing of files."""
    text = line.text.strip()[:1000]
    if _SAVED.search(text):
        if not _same_place(text, message.text):
            return False
        earlier = line.at is not None and message.at is not None and line.at < message.at
        return earlier if line.file != message.file else line.line < message.line
    return line.file != message.file and "/" in text and bool(_LISTED.match(text) and _KEPT.search(text))


def _same_place(saved: str, missed: str) -> bool:
    """False where both name files, and no folder is the same: another program's checkpoints."""
    first, second = _folders(saved), _folders(missed)
    return not first or not second or bool(first & second)


def _folders(text: str) -> set[str]:
    return {part for path in _PATH.findall(text[:1000]) for part in path.split("/")[:-1]} - {"", ".", ".."}
