"""Losses, norms of gradients and loss scales that stop being numbers, step after step.

One step without a number is nothing where the loss is scaled: it is skipped and training goes on. What counts is how
a log ends.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.steps import done, step_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

MANY = 3
"""Steps in a row that make chance unlikely."""
SKIPPED = 5
"""Norms without a number that loss scaling may cause: fewer of them say nothing while the loss is good."""
EXPLODED = 10.0
"""A loss of so many times the usual one, for several steps and to the end, does not come back by itself."""
EXPLODED_LOSS = 5.0
"""And it must be large: small losses vary by large factors."""
SMALLEST_SCALE = 1e-4
"""fairseq gives up below this (`--min-loss-scale`); a sound half-precision run stays above 1."""
RUNNING_DOWN, LOW_SCALE = 8, 0.01
"""So many halvings one after another, to so little: no step was made in between, and none will be."""
NEARLY_NOTHING, SEARCHED = 4.0, 4096.0
"""A log that ends so low and began below where the search for a first scale does, falling throughout."""
LAST_SCALE = 1.0
"""DeepSpeed does not go below this."""

MONSTROUS_LOSS, MONSTROUS_NORM = 1e3, 1e8
"""A loss and a norm of its gradients that no sound training has, whatever it measures."""
LEAPT, UNTRAINED_LOSS = 3.0, 8.0
"""A loss so many times the lowest one, and as large as that of a language model that knows nothing."""

DIVERGED_WEIGHT = 0.6
WINDOWS, SHORTEST_WINDOW = 20, 5
"""A log's losses are compared by the medians of so many windows, each of so many steps at least."""
FEWEST_LOSSES = 40
"""Fewer losses have no level to leave."""
PEAK, STAYS, NOISES, GAIN_LOST = 1.3, 1.08, 6.0, 0.5
"""A loss has diverged that rose by such a factor over its best level and stays by such a factor, and so many times its
own noise, above it to the end, where at least such a share of what training had gained is lost."""

_LOST = re.compile(
    r"(?:^|[\s\[({,;|'\"/_-])(?P<which>[a-z]{0,20}[_ -])?loss(?:_(?!scal)[a-z]\w{0,20})?['\"]?\s{0,3}[:=|]?"
    r"\s{0,3}['\"]?(?:tensor\()?[-+]?"
    r"(?:nan|inf(?:inity)?)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\bloss_(?!scal)[a-z]\w{0,20}['\"]?\s{0,3}[:=]\s{0,3}['\"]?\d", re.IGNORECASE)
"""A loss with its part named behind it that is a number: of use only beside others that are none."""
_FIRST = re.compile(r"(?P<which>[a-z]{2,12}[_ -])?loss", re.IGNORECASE)
_NOT_TRAINED = ("val", "valid", "validation", "eval", "test", "dev", "best", "min", "lowest", "prev", "last", "initial")
"""Losses that are not those of a step: a best loss begins with infinity."""
_NORM = re.compile(r"\bgrad(?:ient)?[_ ]norm['\"]?\s{0,3}[:=]\s{0,3}['\"]?[-+]?(?:nan|inf)\b", re.IGNORECASE)
_UNSCALED = re.compile(r"\bloss[_ ]scale['\"]?\s{0,3}[:=]\s{0,3}1\.0+\b")
"""Nothing is scaled, so no step is skipped; Megatron-LM leaves out a loss that is no number."""
_SCALE = re.compile(
    r"(?:reducing (?:loss scale )?to|setting loss scale to:) (?P<scale>[\d.]{1,24}(?:e[-+]?\d{1,3})?)|"
    r"[Aa]ttempted loss scale: (?P<same>[\d.]{1,24})\b(?!,)"
)
_EPOCH_ENDS = re.compile(
    r"\s{0,8}(?:(?P<all>\d{1,9})/(?P=all) \[=+\] - [^a-z]{0,20}(?:m?s|us)(?:[ /]\S{1,20}){0,2}|"
    r"\d{1,9}s(?: \S{1,20})?) - loss: (?P<loss>\d{1,12}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?)(?![\d.])"
)
_FIRST_CHARACTERS = 13
"""So much of it may stand before the word."""
_SAYS_NUMBER, _SAYS_SCALE = (
    Cue("loss", "norm", of=(_LOST, _NORM)),
    Cue("reducing", "setting loss scale", "attempted loss scale", of=(_SCALE,)),
)


@dataclass(frozen=True)
class _Value:
    line: LogLine
    state: str
    """`good`, `lost` (the loss is no number), `zero` (exactly 0, without a norm), `norm` (the norm alone is none)."""
    loss: float | None
    norm: float | None = None
    """Norm of the gradients where it is named."""
    unscaled: bool = False
    """No loss is named, and none is scaled."""
    step: int | None = None


def not_finite(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams that end with steps whose numbers are lost, or explode."""
    for stream in by_stream(_SAYS_NUMBER.among(lines)):
        values = [value for line in stream if (value := _value(line)) is not None]
        if values:
            yield from _ending(list(_vanished(values)))
            yield from _exploding(values)


def _vanished(values: Sequence[_Value]) -> Iterator[_Value]:
    """The values; a loss that lines named before, and no longer name where the norm is no number, is lost."""
    named = False
    for value in values:
        named = named or value.loss is not None
        yield replace(value, state="lost") if named and value.unscaled and value.state == "norm" else value


def underflow(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams whose loss scale went down to nothing."""
    for stream in by_stream(_SAYS_SCALE.among(lines)):
        scales = [(line, scale) for line in stream if (scale := _scale(line.text)) is not None]
        if not scales:
            continue
        line, last = scales[-1]
        stuck = len(scales) >= MANY and all(scale <= LAST_SCALE for _, scale in scales[-MANY:]) and last >= LAST_SCALE
        falls = last < LOW_SCALE and _running_down([scale for _, scale in scales[-RUNNING_DOWN:]])
        values = [scale for _, scale in scales]
        low = last <= NEARLY_NOTHING and _halved(values)
        below = last < LAST_SCALE and len(values) > RUNNING_DOWN and _running_down(values[-RUNNING_DOWN:])
        if low:
            yield _clue(line, "loss-scale-underflow", 0.7)
        elif last < SMALLEST_SCALE:
            yield _clue(line, "loss-scale-underflow", 0.93)
        elif stuck or falls or below:
            yield _clue(line, "loss-scale-underflow", 0.85)


def _halved(scales: Sequence[float]) -> bool:
    """Was every scale but a few smaller than the one before, and nothing like the search for a first scale?"""
    falls = sum(later < before for before, later in itertools.pairwise(scales))
    return len(scales) >= MANY + 1 and falls == len(scales) - 1 and scales[0] <= SEARCHED


def _running_down(scales: Sequence[float]) -> bool:
    return len(scales) == RUNNING_DOWN and all(later < before for before, later in itertools.pairwise(scales))


def _scale(text: str) -> float | None:
    hit = _SCALE.search(text) if "scale" in text else None
    try:
        return float(hit["scale"] or hit["same"]) if hit is not None else None
    except ValueError:
        return None


def _value(line: LogLine) -> _Value | None:
    lower = line.text[:2000].lower()
    if "loss" not in lower and "norm" not in lower:
        return None
    step = step_of(line)
    loss, norm = (step.loss, step.norm) if step is not None else (_of_epoch(lower), None)
    first = _FIRST.search(lower, max(0, lower.find("loss") - _FIRST_CHARACTERS))
    if first is not None and (first["which"] or "").strip("_- ") in _NOT_TRAINED:
        return None
    if loss is not None and math.isfinite(loss) and norm is None and done(line):
        return None  # A summary's mean of all losses says nothing about the last ones.
    if loss is None and _LOST.search(lower):
        loss = math.nan
    elif loss is None and _NAMED.search(lower):
        return _Value(line, "good", None)
    if norm is None and _NORM.search(lower):
        norm = math.nan
    if loss is None and norm is None:
        return None
    unscaled = loss is None and _UNSCALED.search(lower) is not None
    return _Value(line, _state(loss, norm), loss, norm, unscaled, step.step if step is not None else None)


def _of_epoch(lower: str) -> float | None:
    """The loss at the end of an epoch where the line itself does not name the epoch, as Keras prints it."""
    hit = _EPOCH_ENDS.match(lower)
    return float(hit["loss"]) if hit is not None else None


def _state(loss: float | None, norm: float | None) -> str:
    broken = norm is not None and not math.isfinite(norm)
    if loss is not None and not math.isfinite(loss):
        return "lost"
    if loss == 0.0 and broken:
        return "zero"
    return "norm" if broken else "good"


def _ending(values: Sequence[_Value]) -> Iterator[Clue]:
    """What the last steps say, back to the last good one."""
    good = max((number for number, value in enumerate(values) if value.state == "good"), default=-1)
    tail = values[good + 1 :]
    states = [value.state for value in tail]
    lost, zero = states.count("lost"), states.count("zero")
    if lost:
        yield _clue(tail[0].line, "loss-not-finite", 0.93 if lost >= MANY else 0.86)
    elif zero:
        yield _clue(tail[0].line, "loss-zero", 0.92 if zero > 1 else 0.7)
    elif len(tail) >= SKIPPED or (len(tail) > 1 and good < 0):
        yield _clue(tail[0].line, "norm-not-finite", 0.75 if len(tail) >= SKIPPED else 0.55)


def _exploding(values: Sequence[_Value]) -> Iterator[Clue]:
    losses = [value for value in _last_run(values) if value.loss is not None and math.isfinite(value.loss)]
    huge = [value for value in losses if (value.loss or 0.0) > MONSTROUS_LOSS and (value.norm or 0.0) > MONSTROUS_NORM]
    if len(huge) > 1 and huge[-1] is losses[-1]:
        yield _clue(huge[0].line, "loss-exploded", 0.6)
    if MANY <= len(losses) < 2 * MANY:
        yield from _leaping(losses)
    if len(losses) < 2 * MANY:
        return
    usual = statistics.median(abs(value.loss or 0.0) for value in losses[: len(losses) // 2])
    last = losses[-MANY:]
    yield from _diverged(losses)
    if all((value.loss or 0.0) > max(EXPLODED * usual, EXPLODED_LOSS) for value in last):
        yield _clue(last[0].line, "loss-exploded", 0.55)


def _diverged(losses: Sequence[_Value]) -> Iterator[Clue]:
    """A loss that left the level it had reached, and to the end of the log did not come back to it."""
    if len(losses) < FEWEST_LOSSES:
        return
    size = max(SHORTEST_WINDOW, len(losses) // WINDOWS)
    numbers = [value.loss or 0.0 for value in losses]
    # The last window ends with the log; what is left over at the beginning joins the first one.
    starts = list(range(len(numbers) % size, len(numbers), size))
    levels = [statistics.median(numbers[start : start + size]) for start in starts]
    best = min(range(len(levels)), key=levels.__getitem__)
    low, end = levels[best], min(levels[-2:])
    if low <= 0.0 or best >= len(levels) - 2:
        return
    noise = statistics.median(abs(later - earlier) for earlier, later in itertools.pairwise(numbers))
    risen = max(numbers[starts[best] :]) >= PEAK * low
    if risen and end >= STAYS * low and end - low >= max(NOISES * noise, GAIN_LOST * (levels[0] - low)):
        left = next(value for value in losses[starts[best] :] if (value.loss or 0.0) >= STAYS * low)
        yield _clue(left.line, "loss-diverged", DIVERGED_WEIGHT)


def _last_run(values: Sequence[_Value]) -> Sequence[_Value]:
    """The values since the steps last fell back: before that another run, or another epoch, was measured."""
    numbered = [(place, value.step) for place, value in enumerate(values) if value.step is not None]
    falls = [later for (_, before), (later, step) in itertools.pairwise(numbered) if step < before]
    return values[falls[-1] :] if falls else values


def _leaping(losses: Sequence[_Value]) -> Iterator[Clue]:
    """An excerpt of few steps: a trained model's loss, then that of an untrained one to the end."""
    lowest = min(abs(value.loss or 0.0) for value in losses)
    leapt = [value for value in losses if (value.loss or 0.0) > max(LEAPT * lowest, UNTRAINED_LOSS)]
    if leapt and leapt[0].step is not None and leapt[0].step <= 1:
        return  # The first step of all: another run, as untrained as it should be.
    if len(leapt) > 1 and list(losses[-len(leapt) :]) == leapt:
        yield _clue(leapt[0].line, "loss-exploded", 0.45)


def _clue(line: LogLine, rule: str, weight: float) -> Clue:
    return Clue(
        FaultClass.NUMERIC,
        weight,
        line.text[:400],
        rule,
        rank=line.rank,
        node=line.node,
        at=line.at,
        supersedes=("python-exception", "cuda-device-assert") if rule not in ("loss-exploded", "loss-diverged") else (),
        file=line.file,
        line=line.line,
    )
