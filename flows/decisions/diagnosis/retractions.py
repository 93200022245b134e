"""What a clue is worth where it stands in its stream: a wait that ended, a crash after the work was done.

A program went on where epochs, bars or other counters grow after the line, or where it ends well. Nothing is measured
here, unlike in `flows.decisions.diagnosis.steps`. And what a program stays calm about for many lines, it has survived:
of 850 logs of failures two went on for more than 18 lines after the last line about any trouble, and half of them for
none; what healthy programs complain of stands at their beginning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.files import grew_until
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.steps import REPORTED, done, ends, step_of
from flows.decisions.policy import POLICY, policy_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

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
_SAYS_WELL = Cue(of=(_ENDED_WELL,))
_SAYS = Cue(
    "step", "iter", "epoch", "ep", "batch", "episode", "update", "round", "trial", "it [", "/", " of ", "val", "eval",
    "test", "train", "per sec", " avg", of=(_COUNTER, _BAR, _SHARE, _MEASURED, _TABLED),
)  # fmt: skip


def position(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Which counter a line shows, and how far it is; None where it shows none, or none that proves anything."""
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

    `since`: number of the line in question; nothing up to it is read.
    The last line of a counter proves nothing: it may have been under way, or be the bar that is drawn once more. So the
    lines are read from the end, to the first that has its successor.
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
        place = position(line.text) if _may_count(line) else None
        if place is not None:
            key, numbers = place
            if key in later and numbers != later[key] and numbers[0] <= later[key][0]:
                return line.line
            later[key] = numbers
    return well or grew_until(stream, since)


def _may_count(line: LogLine) -> bool:
    has_counter_words = _SAYS.holds(line.text) or line.text[-1:].isdigit()
    return has_counter_words and not line.text.startswith(REPORTED)


def _ended_well(stream: Sequence[LogLine]) -> int:
    """The line among the last ones that says that all went well, 0 where none does."""
    last = [line for line in stream[-4 * LAST_LINES :] if line.text.strip()][-LAST_LINES:]
    return max((line.line for line, _ in _SAYS_WELL.hits(last, LOOK_CHARACTERS)), default=0)


GRANTED_FACTOR = 0.15
"""What a wait is worth that ended, and a control plane that came back."""
IGNORED_FACTOR = 0.1
"""What an exception is worth that Python itself says it ignored."""
TEARDOWN_FACTOR = 0.15
"""What a crash is worth of a program that had come to its end: libraries fall while they are taken down."""
_GRANTED = re.compile(
    r"Successfully assigned (?:[\w.-]{1,120}/)?(?P<pod>[\w.-]{1,120}) to |\bhas been allocated resources|"
    r"Granted job allocation|Successfully provisioned|[Cc]luster launched|\(autoscaler \+\w{1,12}\) Resized to|"
    r"[Aa]dmitted by [Cc]luster ?[Qq]ueue|[Ww]orkload (?:was )?admitted|pod group is ready\b|are ready to be scheduled"
)
_BACK = re.compile(
    r"successfully acquired lease|[Ss]uccessfully registered node|[Cc]onnection .{0,60}(?:re-?established|restored)|"
    r"[Rr]econnected to .{0,40}(?:server|controller|control plane)|slurmctld .{0,40}(?:responding again|is up)"
)
_SAYS_GRANTED = Cue(of=(_GRANTED,))
_SAYS_BACK = Cue("successfully acquired lease", "successfully registered node", "re-established", "reestablished",
                 "restored", "reconnected to", "slurmctld", of=(_BACK,))  # fmt: skip
_STARTED = re.compile(
    r"\bStarted container \S|\bSuccessfully pulled image\b|\bContainer image \S{1,300} already present on machine|"
    r"^ {4,10}State: {4,12}Running$|\s(?:Pulled|Started)\s{2,20}pod/(?P<pod>[\w.-]{1,120})"
)
_SAYS_STARTED = Cue(of=(_STARTED,))
BEFORE_START = frozenset(
    {"image-pull", "mount-failed", "container-config", "pod-sandbox", "key-missing", "unschedulable", "device-plugin"}
)
"""Rules of what keeps a container from being started: once it runs they are past."""
_MET = re.compile(
    r"Completed store-based barrier|\bInit COMPLETE\b|All distributed processes registered|"
    r"[Ii]nitialized process ?group|[Rr]endezvous (?:complete|has completed)|\bprocess group initialized\b"
)
_SAYS_MET = Cue(of=(_MET,))
_POD = re.compile(r"\bpods?/(?P<pod>[\w.-]{1,120})")
CRASH = re.compile(
    r"terminate called|Fatal Python error|[Ss]egmentation fault|[Ss]egfault|core dumped|double free|\b[Aa]borted\b|"
    r"\bSIG(?:ABRT|SEGV)\b|ended by signal (?:6|11) "
)
"""How programs fall that are taken down."""
_PARTED = re.compile(r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous")
"""What torchrun says when the store's host left first, as it does at the end of every run."""
MOST_IGNORED = 60
"""Lines that one ignored exception has at most."""
_SURVIVED = re.compile(
    r"Exception ignored in|--- Logging error ---|"
    r"Exception in thread (?:Thread-\d{1,6} \(_pin_memory_loop\)|QueueFeederThread|QueueManagerThread)"
)
"""What Python prints before exceptions that end nothing, or only follow when others are taken down."""
_SAYS_SURVIVED = Cue(of=(_SURVIVED,))
_NAME = re.compile(r"^[A-Za-z_][\w.]{0,120}(?::|$)")


@dataclass(frozen=True)
class Retractions:
    """The lines of one stream that take back what stood before them."""

    granted: tuple[tuple[int, str], ...]
    """Line numbers, and the pod that got its place; "" where none is named."""
    back: int
    """Last line that says that the control plane answers again, 0 where none does."""
    done: int
    """First line that says that the training came to its end, 0 where none does."""
    ignored: frozenset[int] = frozenset()
    """Lines of exceptions that ended nothing: raised in finalisers, or while something was logged."""
    started: tuple[tuple[int, str], ...] = ()
    """Line numbers of containers that run, and the pod; "" where none is named."""
    rendezvous: int = 0
    """Last line that says that the ranks have found each other, 0 where none does."""
    ended: int = 0
    """Last line that says that the training came to its end, 0 where none does."""


def standing(stream: Sequence[LogLine]) -> Retractions:
    """What takes back clues of this stream."""
    granted = tuple((line.line, hit["pod"] or "") for line, hit in _SAYS_GRANTED.hits(stream, 2000))
    back = max((line.line for line, _ in _SAYS_BACK.hits(stream, 2000)), default=0)
    ended = [line.line for line in ends(stream) if line.line]
    rendezvous_line = max((line.line for line, _ in _SAYS_MET.hits(stream, 2000)), default=0)
    first, last = (ended[0], ended[-1]) if ended else (0, 0)
    ignored = frozenset(_ignored(stream))
    return Retractions(granted, back, first, ignored, tuple(_started(stream)), rendezvous_line, last)


def _started(stream: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    for line, hit in _SAYS_STARTED.hits(stream, 2000):
        yield line.line, hit["pod"] or next(iter(_POD.findall(line.text[:2000])), "")


def _ignored(stream: Sequence[LogLine]) -> Iterator[int]:
    """Numbers of the lines from `Exception ignored in` to the name of the exception."""
    inside: list[int] = []
    several = 0
    for line in stream if _SAYS_SURVIVED.anywhere(stream) else ():
        if begun := len(_SURVIVED.findall(line.text)):
            # Several processes print theirs through each other: then every line up to the last name is theirs.
            several = several + begun if inside or begun > 1 else 0
            inside.append(line.line)
        elif inside and (several > 1 or not line.text or line.text[0].isspace() or line.text.startswith("Traceback")):
            inside.append(line.line)
            several -= 1 if several and _NAME.match(line.text) else 0
            if len(inside) > MOST_IGNORED:
                yield from inside
                inside, several = [], 0
        elif inside:
            yield from (*inside, line.line) if _NAME.match(line.text) else inside
            inside, several = [], 0
    yield from inside


def lived_with(stream: Sequence[LogLine], streams: Sequence[Sequence[LogLine]], since: int) -> int:
    """Number of the line up to which training went on: by the stream's own words, or by those without a rank beside it.

    In one file the lines of a rank may have its number before them, and the steps of the whole gang none; or a line of
    nobody stands among those of ranks. Nothing up to the line `since` is looked at.
    """
    first = stream[0]
    if not first.file:
        return went_on_until(stream, since)
    common = [
        other
        for other in streams
        if other is not stream and other[0].file == first.file and None in (first.rank, other[0].rank)
    ]
    return max(went_on_until(part, since) for part in (stream, *common))


def lessened(clue: Clue, where: Retractions) -> Clue:
    """The clue, worth less where a later line takes it back, or where the work was done before it."""
    if clue.line == 0:
        return clue
    if clue.line in where.ignored:
        return replace(clue, weight=clue.weight * IGNORED_FACTOR)
    if _granted(clue, where):
        return replace(clue, weight=clue.weight * GRANTED_FACTOR)
    if fell_at_the_end(clue, where.done):
        return replace(clue, weight=clue.weight * TEARDOWN_FACTOR)
    return clue


def _granted(clue: Clue, where: Retractions) -> bool:
    """True where what the clue waited for, or complained of, came: a place, a container, its peers, an answer."""
    if clue.rule in BEFORE_START and _named_later(clue, where.started):
        return True
    match policy_of(clue.fault_class, clue.rule).retracted_by:
        case "place":
            return _named_later(clue, where.granted)
        case "answer":
            return clue.line < where.back
        case "peers":
            return clue.line < where.rendezvous
        case "end-of-training":
            return clue.line < where.ended
        case "nothing":
            return False


def fell_at_the_end(clue: Clue, done_line: int) -> bool:
    """True for a crash, or a lost rendezvous, after the line that says that the work was done."""
    if not 0 < done_line < clue.line:
        return False
    if clue.fault_class is FaultClass.RENDEZVOUS:
        return _PARTED.search(clue.text) is not None
    return POLICY[clue.fault_class].may_be_teardown and CRASH.search(clue.text) is not None


def _named_later(clue: Clue, where: Sequence[tuple[int, str]]) -> bool:
    """True where a later line says it of the clue's pod, or one of them names none."""
    hit = _POD.search(clue.text)
    pod = hit["pod"] if hit is not None else ""
    return any(line > clue.line and (not pod or not name or name == pod) for line, name in where)


SURVIVED_LINES = 25
"""So many calm lines to the end of a stream, and what stands before them ended nothing."""
MOST_LINES = 500
"""After more lines than this nothing is concluded: in logs of thousands of lines loaders and monitors talk on."""
WEAK_LINES, STRONG_LINES = 6, 16
"""The same for words of failure that no rule knows: mere refusals, and crashes."""
_DUMPED = re.compile(
    r"^(?:\s{4}|[|+│╭╰>*#=~-]|frame\b|[\w./-]{1,200}\([+\w]{0,200}\) ?\[0x|\d{1,3}[:#] )|0x[0-9a-f]{6,}|"
    r"(?i:resource usage|turnaround time|\b(?:cpu|run) time :|\bend of error message\b|closing signal|launcher|"
    r"torchrun|elastic|site-packages|\bFile \")"
)
"""What is printed at an end: stacks, tables, reports of launchers and batch systems."""


def calm_after(stream: Sequence[LogLine], line: int) -> int:
    """How many lines of the stream follow a line that are sentences of their own, and no part of a report."""
    if stream[-1].line - line > MOST_LINES:
        return 0
    return sum(1 for other in stream if other.line > line and other.text and _DUMPED.search(other.text[:400]) is None)


def survived(stream: Sequence[LogLine], loud: Collection[int]) -> int:
    """Number of the line up to which a stream outlived what it reported; 0 where it ends too soon after it.

    `loud`: numbers of the lines that report trouble.
    """
    last = max(loud, default=0)
    if last == 0 or stream[-1].line - last < SURVIVED_LINES or calm_after(stream, last) < SURVIVED_LINES:
        return 0
    return last + 1
