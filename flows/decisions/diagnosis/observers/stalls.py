"""Logs that stop: a bar that never moved, a silence far longer than any step, a program that a person had to interrupt.

Nobody presses Ctrl-C before the first step without a reason; once training has made steps, anybody may have stopped it.
A position (epoch, step, place within the epoch) is read more broadly than by `flows.decisions.diagnosis.steps`:
headers, bars and rows of tables count, without a loss. It only answers where a training began.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.retractions import went_on_until
from flows.decisions.diagnosis.steps import done, steps
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

BAR_WEIGHT = 0.45
"""A progress bar at its beginning after so long: it hangs, or its first step is very slow."""
SILENCE_WEIGHT = 0.5
"""Nothing was printed for so long, and then it was ended from outside, or no step followed."""
BAR_SECONDS = 600.0
"""Time without a first step from which a bar counts: a first step may compile, load, and warm up for minutes."""
SILENCE_SECONDS = 1800.0
"""The usual limit of a collective: whoever is silent for longer does not wait for one that anybody watches."""
LONGEST_SILENCE_SECONDS = 14 * 86_400.0
"""Nobody leaves a job alone for so long: a stamp that much later is another clock's."""
SILENCE_STEPS = 30
"""And so many times the usual distance of two steps."""
FEWEST_STEPS = 3
"""Steps that must be known before their distance means anything."""
_LAST_OF_ALL = re.compile(r"(?<![\d.])([1-9]\d{0,8}) ?/ {0,9}\1(?![\d.])")
"""The last step of so many: nothing is waited for after it."""
MOST_FORMS = 3
"""So few kinds of lines, each said again and again, are signs of life of somebody else."""
_BAR = re.compile(r"\b0%\|[^|]{0,200}\| 0/\d{1,9} \[(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<\?")
_ENDED = re.compile(
    r"CANCELLED AT|\bSIGTERM\b|\bSIGINT\b|KeyboardInterrupt|[Tt]erminated\b|signal (?:15|2)\b|[Kk]illed by user|"
    r"scancel"
)
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)")
DAY_SECONDS = 86_400.0
ENDLESS_WEIGHT = 0.5
"""A log that ends with nothing but the same line of waiting, for so long or so often."""
ENDLESS_SECONDS, ENDLESS_LINES, OFTEN = 600.0, 4, 8
_WAITS = re.compile(
    r"(?i)\b(?:(?:still )?waiting (?:for|on|at|in)\b(?!.{0,40}\b(?:pods?|schedul\w*|resources?|quota|capacity|"
    r"gpus?|nodes?|"
    r"slots?|approval|allocation)\b)|heart-?beat\b|still (?:alive|running|in progress)\b|no (?:output|update|"
    r"change)\b|"
    r"stall(?:ed|ing)?\b|watchdog\b.{0,40}\bstep\b|unchanged\b|polling\b)"
)
_DIED = re.compile(r"(?i)refused|fail|error|unreachable|timed out|lost|missed|expired")
_STAMP = re.compile(
    r"\d{1,4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|"
    r"\b\d{1,9}(?:\.\d{1,6})? ?(?:s|sec\w{0,4}|ms|m|min\w{0,4}|h)\b"
)
_SAYS_WAITS = Cue("waiting", "heartbeat", "heart-beat", "still", "no output", "no update", "no change", "stall",
                  "watchdog", "unchanged", "polling", of=(_WAITS,))  # fmt: skip
_SAYS_BAR = Cue(of=(_BAR,))


def bars(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Progress bars that stand at zero where their log ends."""
    for stream in by_stream(lines) if _SAYS_BAR.anywhere(lines) else ():
        non_empty = [line for line in stream[-3:] if line.text.strip()]
        hit = _BAR.search(non_empty[-1].text) if non_empty else None
        if hit is None:
            continue
        seconds = int(hit["hours"] or 0) * 3600 + int(hit["minutes"]) * 60 + int(hit["seconds"])
        if seconds >= BAR_SECONDS:
            yield _clue(
                non_empty[-1], BAR_WEIGHT, f"no step in {seconds} s: {non_empty[-1].text.strip()[-120:]}", "bar-at-zero"
            )


def silences(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Steps, then a silence far longer than any step, and after it no progress: an end from outside, or words alone.

    Ranks of one file are read together, since those that make steps may be silent while others speak.
    """
    for stream in _by_file(lines):
        made = steps(stream if len(stream) > FEWEST_STEPS else ())
        own = _with_own_time(stream) if made else frozenset[int]()
        timed = [
            (found.line, moment)
            for found in made
            if found.line.line in own and (moment := _moment(found.line)) is not None
        ]
        if len(timed) < FEWEST_STEPS or timed[-1][0] is not made[-1].line or any(done(line) for line in stream):
            continue
        usual = statistics.median(_since(earlier, later) for (_, earlier), (_, later) in itertools.pairwise(timed))
        limit = max(SILENCE_SECONDS, SILENCE_STEPS * usual)
        last, at = timed[-1]
        if _LAST_OF_ALL.search(last.text[:MAX_CHARACTERS]):
            continue
        after = [line for line in stream if line.line > last.line and line.text.strip()]
        if (found := _silent(after, at, limit)) is not None:
            line, silence = found
            ended = _ENDED.search(line.text) is not None
            if ended or not went_on_until(stream, last.line):
                what = "then" if ended else "and no step after it"
                text = f"no step for {silence:.0f} s after the last one, {what}: {line.text.strip()[:200]}"
                yield _clue(line, SILENCE_WEIGHT, text, "silence-ended" if ended else "silence-stays")


def _with_own_time(stream: Sequence[LogLine]) -> frozenset[int]:
    """Numbers of the lines that say when they were printed; others have the time of a line somewhere before them."""
    before: float | None = None
    own = set[int]()
    for line in stream:
        if line.at != before or _CLOCK.search(line.text[:80]) is not None:
            own.add(line.line)
        before = line.at
    return frozenset(own)


def _silent(after: Sequence[LogLine], last: float, limit: float) -> tuple[LogLine, float] | None:
    """The first line after a gap of so many seconds, or the last of nothing but the same few lines for so long."""
    before = last
    for line in after:
        moment = _moment(line)
        if moment is not None and _since(last, moment) > LONGEST_SILENCE_SECONDS:
            continue
        if moment is not None and _since(before, moment) > limit:
            return line, _since(last, moment)
        before = before if moment is None else moment
    forms = {"".join(filter(str.isalpha, line.text[:300])) for line in after}
    same = 0 < len(forms) <= MOST_FORMS and len(after) >= MOST_FORMS * len(forms)
    return (after[-1], _since(last, before)) if same and _since(last, before) > limit else None


def _by_file(lines: Sequence[LogLine]) -> tuple[tuple[LogLine, ...], ...]:
    """Lines of programs by file; those without a file by their stream. Kernels and events speak when they like."""
    spoken = [line for line in lines if line.source not in ("kernel", "event")]
    files: dict[str, list[LogLine]] = {}
    for line in spoken:
        if line.file:
            files.setdefault(line.file, []).append(line)
    return (*map(tuple, files.values()), *by_stream(line for line in spoken if not line.file))


def _since(earlier: float, later: float) -> float:
    """Seconds from one moment to a later one; clocks without a date begin anew at midnight."""
    passed = later - earlier
    return passed + DAY_SECONDS if passed < 0.0 and max(earlier, later) <= DAY_SECONDS else passed


def endless(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Logs whose end is nothing but one line of waiting, again and again, that differs in its times alone."""
    for stream in by_stream(lines) if _SAYS_WAITS.anywhere(lines) else ():
        non_empty = [line for line in stream if line.text.strip()]
        tail: list[LogLine] = []
        for line in reversed(non_empty):
            words = _STAMP.sub("", line.text[:300])
            if not _SAYS_WAITS.holds(line.text) or (tail and words != _STAMP.sub("", tail[0].text[:300])):
                break
            tail.append(line)
        if len(tail) < ENDLESS_LINES or not _WAITS.search(tail[0].text) or _DIED.search(tail[0].text):
            continue
        begun, ended = _moment(tail[-1]), _moment(tail[0])
        if len(tail) >= OFTEN or (begun is not None and ended is not None and ended - begun >= ENDLESS_SECONDS):
            yield _clue(
                tail[0], ENDLESS_WEIGHT, f"{len(tail)} times, and nothing else: {tail[0].text.strip()}", "waits-on"
            )


def _moment(line: LogLine) -> float | None:
    """When a line was printed: what is known of it, or the clock that stands in it."""
    if line.at is not None:
        return line.at
    hit = _CLOCK.search(line.text[:80])
    return int(hit[1]) * 3600.0 + int(hit[2]) * 60.0 + int(hit[3]) if hit else None


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    """A hang has a cause: this counts little once one is known."""
    return Clue(FaultClass.HANG, weight, text[:400], rule, node=line.node, echo=True, file=line.file, line=line.line)


WAITING_WEIGHT = 0.8
"""The stack of an interrupted program ends where it waits for others."""
DEEP = 8
"""Innermost lines of the stack that are looked at."""
_STOPPED = re.compile(r"^(?:\S{1,20} )?KeyboardInterrupt\b|Received 2 death signal|closing signal SIGINT\b")
_SAYS = Cue(of=(_STOPPED,))
_FRAME = re.compile(r'^\s*File "[^"]{1,400}", line \d+, in (?P<function>[\w<>.]{1,100})')
_INTERRUPTED_WAITS = re.compile(
    r"(?i)^(?:_try_get_data|_get_data|get|_get|poll|_poll|wait\w{0,20}|_wait\w{0,20}|acquire|recv\w{0,20}|_recv\w{0,20}|"
    r"select|read_bytes|all_?reduce\w{0,20}|all_?gather\w{0,20}|broadcast\w{0,20}|barrier|_create_c10d_store|"
    r"init_process_group|synchronize|join)$"
)


def interrupted(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams that were stopped by hand in a wait, before any step."""
    for stream in by_stream(lines) if _SAYS.anywhere(lines) else ():
        stops = [line for line, _ in _SAYS.hits(stream)]
        if not stops or steps(stream):
            continue
        functions = [hit["function"] for line in stream if (hit := _FRAME.match(line.text)) is not None]
        if any(_INTERRUPTED_WAITS.match(name) for name in functions[-DEEP:]):
            line = stops[0]
            text = f"stopped by hand while it waited in {functions[-1]}: {line.text.strip()[:160]}"
            yield Clue(FaultClass.HANG, WAITING_WEIGHT, text, "stopped-in-a-wait", "nobody", line.node, at=line.at,
                       supersedes=("hang-up", "user-interrupt", "elastic-sigterm"), file=line.file,
                       line=line.line)  # fmt: skip
            return


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
    unit: bool = False
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
        return Position(line, _number(hit["epoch"]), _number(step), unit=True)
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
