"""Where a training stands: the epoch, the step and the place within the epoch that a line of any trainer shows.

Broader than `flows.decisions.steps`: a header of an epoch, a progress bar and a row of a table count, without a loss.
Only for the question where a training began; the lines of steps are the better evidence of how it went on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flows.decisions.steps import steps
from workflows.evidence import LogLine

MAX_CHARACTERS = 400
"""Headers are short."""


@dataclass(frozen=True)
class Position:
    """What one line says of the place of the training; None for what it does not say."""

    line: LogLine
    epoch: int | None
    step: int | None
    within: int | None = None
    """Batches made of the epoch."""
    total: int | None = None
    """Steps of the whole training, as a bar counts them."""
    header: bool = False
    """The line names an epoch and perhaps the place within it, and no step of the whole training."""
    told: bool = False
    """The trainer announces it: `Continuing training from …`, and not a line of a step."""


_NOT_TRAINING = re.compile(
    r"(?i)\b(?:val(?:id\w*)?|eval\w*|test\w*|infer\w*|sanity|skip\w*|shards|download\w*|map|tokeniz\w*|generat\w*|"
    r"filter|load\w*(?! train data)|cach\w*|scan\w*|compil\w*|resum\w*|restor\w*|sav(?:ed|ing)|check ?point\w*|"
    r"warm-?up)\b(?!_?loss)"
)
_EPOCH = r"(?P<epoch>\d{1,6})"
_ANNOUNCED = re.compile(
    r"(?i)(?:continuing training from (?:global )?|training starts at |start(?:ing|ed)? (?:training )?(?:from|at) |"
    r"begin(?:ning)? (?:training )?(?:from|at) )"
    r"(?:epoch\s{0,2}[:=#]?\s{0,2}(?P<epoch>\d{1,6})\b(?:.{1,12}\b(?:step|iter\w*)\s{0,2}[:=#]?\s{0,2}(?P<both>\d{1,9}))?|"
    r"(?:step|iteration|iter)\s{0,2}[:=#]?\s{0,2}(?P<step>\d{1,9})\b)"
)
_EPOCHS = (
    re.compile(
        rf"(?i)(?:^|[\s|(])(?:train\w{{0,3}}|epoch(?: ?\(train\))?)\s{{0,3}}:?\s{{0,3}}\[{_EPOCH}(?:/\d{{1,6}})?\]"
        r"\s{0,3}\[\s{0,9}(?P<within>\d{1,9})/\d{1,9}\]"
    ),
    re.compile(rf"(?i)(?:^|[\s|(])train: {_EPOCH} \[\s{{0,9}}(?P<within>\d{{1,9}})/\d{{1,9}}"),
    re.compile(
        rf"(?i)(?:^|[\s|(])epoch[ :#=]{{1,3}}{_EPOCH}(?:/\d{{1,6}})?[:,]?\s{{1,3}}\|?\s{{0,3}}\d{{1,3}}%\|"
        r"[^|]{0,200}\|\s{0,3}(?P<within>\d{1,9})/\d{1,9}"
    ),
    re.compile(rf"^\s{{0,12}}{_EPOCH}/\d{{1,6}}\s{{1,9}}[\d.]{{1,9}}[GM]\s"),
    re.compile(
        r"(?i)(?:^|[\s|\[(])(?:train data for |begin(?:ning)? |start(?:ing)? |train(?:ing)? )?epoch[ :=#\[]{1,3}"
        rf"{_EPOCH}\b"
    ),
)
"""torchvision, Swin, mmcv, mmengine; timm; bars of Lightning; rows of YOLO; headers of keras, fairseq and others."""
_STEPS = (
    re.compile(
        r"(?i)^(?!.{0,60}(?:batch|epoch|fold))\D{0,60}(?<![\d/.])"
        r"(?P<step>\d{1,9})/(?P<total>\d{2,9})(?::|,| \|)?\s{1,3}(?:\w{2,20}_)?loss\b"
    ),
    re.compile(r"\] \[(?P<step>\d{1,9})\] \w{2,40}="),
    re.compile(r"^\s{0,12}(?P<step>\d{1,9}) \(\d{1,3}\.\d{1,3}%\)\s"),
    re.compile(r"^\|\s{1,6}total_timesteps\s{1,40}\|\s{0,6}(?P<step>\d{1,12})"),
    re.compile(
        r"(?i)^(?:steps?|train(?:ing)?(?: (?:progress|steps?|iterations?))?|iterations?|progress)?:?\s{0,3}\d{1,3}%\|"
        r"[^|]{0,200}\|\s{0,3}(?P<step>[1-9]\d{0,8})/(?P<total>\d{2,9}) \["
    ),
    re.compile(
        r"(?i)(?:^|[\s\]|])(?:train(?:ing)? )?(?:iter(?:ation)?|step|global_step)s?\s{0,2}[:=#\[]?\s{0,3}"
        r"(?P<step>\d{1,9})(?!,\d{3})(?:\]|\s{0,2}/\s{0,2}\d{1,9})?\s{0,2}(?:$|[:|,.;]|\.{3})"
    ),
)
"""multinerf; clu; nerfstudio; stable-baselines; bars of whole trainings; headers of steps."""


def position(line: LogLine) -> Position | None:
    """Where the line shows the training; None where it shows no place in it."""
    text = line.text[:MAX_CHARACTERS]
    if not any(letter.isdigit() for letter in text):
        return None
    hit = _ANNOUNCED.search(text)
    if hit is not None:
        step = hit["step"] or hit["both"]
        return Position(line, _number(hit["epoch"]), _number(step), told=True)
    if (words := _NOT_TRAINING.search(text)) is not None and words.start() < 120:
        return None
    found = steps((line,))
    step = found[0].step if found else None
    epoch = int(found[0].epoch) if found and found[0].epoch is not None else None
    by_epoch = next((hit for pattern in _EPOCHS if (hit := pattern.search(text))), None)
    if by_epoch is not None:
        within = _number(by_epoch.groupdict().get("within"))
        return Position(
            line,
            int(by_epoch["epoch"]),
            step if within is None else None,
            within,
            header=within is not None or step is None,
        )
    by_step = next((hit for pattern in _STEPS if (hit := pattern.search(text))), None) if step is None else None
    if by_step is not None:
        return Position(line, epoch, int(by_step["step"]), None, _number(by_step.groupdict().get("total")))
    return Position(line, epoch, step) if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text else None
