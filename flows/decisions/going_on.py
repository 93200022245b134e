"""What shows that a program went on, in anybody's words: epochs, bars and other counters that grow, and good ends.

Broader than steps with their losses (`flows.decisions.steps`): here nothing is measured. It is only asked up to where a
log proves that what stood before ended nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from flows.decisions.cues import Cue
from flows.decisions.growing import grew_until
from flows.decisions.steps import REPORTED, done, step_of
from workflows.evidence import LogLine

NUMBERS = 3
"""Numbers of a line that are compared: epoch, step and how many there are."""
LOOK_CHARACTERS = 400
_COUNTER = re.compile(
    r"(?<![\w-])(?P<word>(?:global[-_ ]|train(?:ing)?[-_ ])?(?:step|iteration|iter|epoch|ep|batch(?:_id)?|episode|"
    r"num_updates|update|round|trial)s?)(?: ?\((?:train|val|eval|test)\))?['\"]?\s{0,3}[:=#]?\s{0,12}[\[(]?\s{0,8}"
    r"(?P<count>\d{1,9})\b",
    re.IGNORECASE,
)
_BAR = re.compile(r"(?P<count>\d{1,9})(?:/\d{1,9}|it) \[[=>.\d:]")
_SHARE = re.compile(r"(?<![\w/.:-])(?P<count>\d{1,9}) ?(?:/|of) ?(?P<all>\d{1,9})(?![\w/:.-])")
_MEASURED = re.compile(
    r"(?i)\b(?:tok(?:en)?s?|samples?|images?|imgs?|examples?|seq(?:uence)?s?|it|steps?|frames?)(?:/s\b| per sec)|"
    r"/step\b|\b(?:val(?:id\w{0,6})?|eval\w{0,6}|test|train\w{0,3})[ _/-]{1,2}"
    r"(?:acc\w{0,6}|loss|f1|auc|m?ap|score|ppl|wer|bleu|reward)\W{1,4}\d"
)
_ROW = re.compile(
    r"^\s{0,12}(?P<count>\d{1,12})(?:\.\d{1,12})?"
    r"(?:\s{1,20}(?:-?[\d.]{1,18}(?:e[+-]?\d{1,3})?|float|half|sum|none|N/A)){1,16}\s*$"
)
"""A row of a table of results: the first column is what grows."""
_TABLED = re.compile(
    r"(?i)^\|\s{1,12}(?:(?:total|num|n)_)?(?:timesteps|iterations|updates|episodes|steps|epochs?)\s{1,40}\|\s{0,12}"
    r"(?P<count>\d{1,12})\s{0,40}\||^ ?(?P<batch>\d{1,9}): [\d.]{1,20}, [\d.]{1,20} avg(?: loss)?, "
)
"""stable-baselines and OpenAI's loggers; darknet."""
_ERROR_MEASURED = re.compile(
    r"(?i)\b(?:train\w{0,3}|val\w{0,7}|eval\w{0,6}|test|dev|m|rmse|mean)[-_ ]{0,2}m?error(?=[ :=@]{1,3}\d)|"
    r"\b[a-z]{0,12}(?:fail|crash|abort)[a-z]{0,6}=(?=[\d\[])"
)
"""A measure, and no complaint."""
_INTEGER = re.compile(r"\d{1,12}")
_NO_PROGRESS = re.compile(
    r"(?i)error|exception|fail|\bretr(?:y|ies)|attempt|timed? ?out|waiting|resum|restor|restart|\bload|abort|kill|"
    r"signal|refused|stuck|hang\b|hung\b|no progress|stall|crash|(?:loss|norm)\W{1,6}(?:nan|inf)|[?]it/s|\bFile \""
)
"""What programs count when they do not go on, or before they do."""
LAST_LINES = 6
"""A good end in other words counts where at most so many lines follow it: in the middle anything is completed."""
_WHAT = r"(?:model|weights|adapters?|checkpoint)"
_ENDED_WELL = re.compile(
    r"(?i)\b(?:completed|finished|ended|exited) successfully\b|\bsuccessfully (?:completed|finished|trained)\b|"
    rf"\b(?:saved|saving|wrote|written) (?:the )?(?:final|best|trained|fine-?tuned|last) {_WHAT}|"
    r"\breporting training success\b|^# Avg bus bandwidth {1,8}: \d|^# Collective test concluded|"
    rf"\b(?:final|trained|fine-?tuned) {_WHAT} (?:was |is )?(?:saved|written)|"
    r"\bresults? (?:were |are )?(?:written|saved)\b|"
    r"^\W{0,6}(?:(?:final|overall) )?(?:test|final|best)[ _-]"
    r"(?:accuracy|acc|loss|score|f1|map|bleu|wer|results?|metrics?)\b.{0,30}\d"
)
_SAYS_WELL = Cue(
    "successfully",
    "training success",
    "avg bus",
    "concluded",
    "saved",
    "saving",
    "wrote",
    "written",
    "test",
    "final",
    "best",
    of=(_ENDED_WELL,),
)
_SAYS = Cue(
    "step", "iter", "epoch", "ep", "batch", "episode", "update", "round", "trial", "it [", "/", " of ", "val", "eval",
    "test", "train", "per sec", " avg", of=(_COUNTER, _BAR, _SHARE, _MEASURED, _TABLED),
)  # fmt: skip


def position(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Which counter a line tells, and how far it is; None where it tells none, or none that proves anything."""
    text = _ERROR_MEASURED.sub("", text[:LOOK_CHARACTERS])
    hit = _COUNTER.search(text)
    word = hit["word"].lower() if hit is not None else "bar"
    hit = hit or _BAR.search(text) or _ROW.match(text)
    numbers: tuple[int, ...] = ()
    if hit is not None:
        numbers = _integers(text[hit.start("count") :])
    elif (hit := _TABLED.match(text)) is not None:
        word, numbers = "".join(filter(str.isalpha, hit[0].lower())), (int(hit["count"] or hit["batch"]),)
    elif (hit := _SHARE.search(text)) is not None:
        word, numbers = f"of {hit['all']}", (int(hit["count"]),)
    elif (hit := _MEASURED.search(text)) is not None:
        numbers = (0, *_integers(text[hit.start() :]))
    if hit is None or _NO_PROGRESS.search(text):
        return None
    return word + "".join(filter(str.isalpha, text[: hit.start()].lower())), numbers


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _INTEGER.findall(text)[:NUMBERS])


def went_on_until(stream: Sequence[LogLine], since: int = 0) -> int:
    """Number of the line up to which the stream's own words prove that it went on, or came to its end; 0: nothing does.

    The last line of a counter proves nothing: it may have been under way, or be the bar that is drawn once more. So the
    lines are read from the end, to the first that has its successor.

    Args:
        stream: lines of one source, in order.
        since: number of the line of which it is asked whether it was outlived; nothing up to it is read.
    """
    well = _ended_well(stream)
    later: dict[str, tuple[int, ...]] = {}
    stepped = False
    for line in reversed(stream):
        if line.line <= max(since, well):
            break
        if done(line):
            return line.line
        found = step_of(line)
        if found is not None and (found.loss is None or math.isfinite(found.loss)):
            if stepped:
                return line.line
            stepped = True
        told = position(line.text) if _may_count(line) else None
        if told is not None:
            key, numbers = told
            if key in later and numbers != later[key] and numbers[0] <= later[key][0]:
                return line.line
            later[key] = numbers
    return well or grew_until(stream, since)


def _may_count(line: LogLine) -> bool:
    told = _SAYS.holds(line.text) or line.text[-1:].isdigit()
    return told and not line.text.startswith(REPORTED)


def _ended_well(stream: Sequence[LogLine]) -> int:
    """The line among the last ones that says that all went well, 0 where none does."""
    last = [line for line in stream[-4 * LAST_LINES :] if line.text.strip()][-LAST_LINES:]
    said = (line.line for line in _SAYS_WELL.among(last) if _ENDED_WELL.search(line.text[:LOOK_CHARACTERS]))
    return max(said, default=0)
