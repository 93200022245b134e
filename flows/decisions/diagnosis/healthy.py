"""When nothing is wrong: logs that speak of no failure; and how sure it is that a cause is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from flows.decisions.diagnosis.clues import Clue, Weighing
from flows.decisions.diagnosis.exceptions import CUT
from flows.decisions.diagnosis.lines import Level, by_stream, level_of
from flows.decisions.diagnosis.matching import match_line
from flows.decisions.diagnosis.retractions import (
    CRASH,
    STRONG_LINES,
    WEAK_LINES,
    calm_after,
    fell_at_the_end,
    lived_with,
    position,
    standing,
    went_on_until,
)
from flows.decisions.diagnosis.steps import done, step_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

SPEAKS_OF_FAILURE = 0.15
"""A clue of less weight was outlived, or an echo of something that is known."""
ENDED_WELL, GOES_ON, SILENT, FELL_AT_THE_END = 0.96, 0.9, 0.66, 0.6
"""Confidence that nothing is wrong: the training says that it came to its end; it trains; nothing is said at all; it
had come to its end when libraries fell that were taken down. Of logs that nobody had seen before 22 of 36 were healthy
where nothing is said (0.98 of those that rules were written for: what is stated lies between), and 30 of 34 where it
trains or says its end (`make calibration` counts anew)."""
CAUSE_UNTOLD, WORDS_ONLY, BEGUN_ONLY = 0.82, 0.4, 0.5
"""Confidence that the cause cannot be known: an end without one, words of failure that only an expert may know, or a
log that says nothing but that something begins."""
FEW_LINES = range(2, 7)
"""A log of so many lines, of which the last begins something, is no evidence of health; of a longer one, an excerpt of
a sound start as often as not, it is doubtful."""
_BEGINS = re.compile(
    r"(?i)(?:^|[\s\]:>-])(?:(?:re-?)?initiali[sz](?:e|ing)|loading|starting|setting up|set up|building|creating|"
    r"connecting|downloading|waiting|compiling|begin(?:s|ning)?|preparing|launching|spawning|entering|warming up|"
    r"joining|spinning up|resuming|restoring|tokenizing|preprocessing|allocating|capturing|wrapping|sharding|"
    r"partitioning|fetching|importing|registering|syncing|synchronizing|broadcasting)\b|"
    r"^(?!\W{0,3}(?i:skipping|ignoring)\b).{0,160}\w\W{0,3}(?:\.{3}|\u2026)\W{0,3}$|\bInit START\b|"
    r"\b[NR]CCL (?:INFO (?:Bootstrap|NET/|Using|cuda\w{0,9}Version|Channel|comm |ncclCommInit)|version)|"
    r"\bworld[ _]size\b[ :=]{1,3}\d"
)
"""What programs say as they begin something, before they have done it."""
_BEGUN = re.compile(
    r"(?i)\b(?:done|completed?|finish(?:ed)?|success\w{0,6}|ready|took|"
    r"in \d[\d.]{0,8} ?(?:s|ms|sec\w{0,4}|min\w{0,4})|passed|saved|ok|running|listening|100 ?%)\b"
)
"""What says that it was done."""
FAREWELLS = frozenset({"elastic-sigterm", "launcher-told-to-end"})
"""Rules of what launchers print at every end."""
SUMMARIES = frozenset({*FAREWELLS, "elastic-child-failed", "program-ended", "launcher-summary", "exit-code", CUT})
"""Rules of what launchers add to a crash."""
_WORDS = re.compile(
    r"^\s{0,8}Traceback \(most recent call (?:last|first)\)|"
    r"^\*\*\* StackTrace Information|^frame #\d{1,3}: \S|"
    r"\b(?:[A-Z]\w{0,60}(?:Error|Exception)|[Ee]rror|ERROR)(?: ?\(\w{0,20}\))?: \S|"
    r"\b(?:[Ff]atal|FATAL|[Aa]borted|[Aa]borting|ABORT(?:ED|ING)?|core dumped|terminate called|[Ss]egmentation fault|"
    r"[Kk]illed|KILLED|[Aa]ssertion|panic(?=:)|[Cc]rash(?:ed|es)?|died unexpectedly)\b|"
    r"^(?:.{1,80}: line \d{1,6}:\s{1,6}\d{1,9} )?Terminated(?:\s{2}|$)|"
    r"(?i:(?<![\w#-])(?:fail(?:ed|ure|s)?|unable to|timed out|refused|denied|corrupt(?:ed)?|unhealthy|"
    r"(?:marked|declared|presumed)(?: as)? dead|lost (?:connection|contact)|(?:connection|contact|heartbeat) lost|"
    r"insufficient|stalled|disconnected|unrecoverable|evicted|"
    r"not responding|exceeded|degraded|unresponsive|(?<!/)unreachable|stuck|hung|inconsistent|misbehav\w{1,4}|"
    r"malfunction\w{0,4})\b(?![=-]))"
)
"""What programs say when something goes wrong, in whatever words follow."""
_STRONG = re.compile(
    r"^\s{0,8}Traceback \(|^\*\*\* Stack|\b[A-Z]\w{0,60}(?:Error|Exception)(?: ?\(\w{0,20}\))?: \S|"
    r"\b(?:[Ff]atal|FATAL|[Aa]bort(?:ed|ing)|ABORT(?:ED|ING)?|core dumped|terminate called|[Ss]egmentation fault|"
    r"[Kk]illed|KILLED|panic|[Cc]rash(?:ed|es)?|died)\b|^(?:.{1,100}\s)?Terminated\b"
)
"""Those of them that programs hardly outlive."""
_CHECKED = "[Hardware Error]: Machine check events logged"
_CORRECTED = re.compile(r"(?i:(?<!un)\bcorrected\b)|\bCE\b|\bboot\b")
_GIVES_UP = re.compile(
    r"(?i)\bgiv\w{1,3} up\b|\bexiting\b|\bcannot (?:go on|continue|proceed)|\bstopp(?:ed|ing)\b|\bunrecoverable|"
    r"\bdead\b|\blost (?:connection|contact)|\bnot responding|\brun failed|\bjob\b|\berror: |\bevicted\b|\bassertion|"
    r"\bcheck failure"
)
"""Words of an end, whatever a script prints after it."""
_FINISHED = re.compile(
    r"(?i)^\W{0,8}(?:all )?(?:done|finished|completed?|success(?:ful(?:ly)?)?|bye|good ?bye)\W{0,8}$"
)
_METRIC = re.compile(
    r"(?i)\b\w{0,30}(?:fail\w{0,4}|crash\w{0,2}|abort\w{0,2}|stuck|kill\w{0,2})\w{0,20}[ :=]{1,3}[\d.]+%?"
)
"""Counts of what the trained program did, as learners print them beside their steps."""
_KERNEL_WORDS = re.compile(r"\*ERROR\*|\b(?:Oops|BUG:|Call Trace|[Kk]ernel panic|[Ff]atal)\b|\bI/O error\b")
"""Kernels say `failed` of much that is harmless."""
_ALL_IS_WELL = re.compile(
    r"(?i)\b(?:0|no|without|zero) (?:\w{1,20} )?(?:errors?|failures?|faults?|failed|crash(?:es)?|corrupt(?:ed)?|"
    r"missing|timeouts?)\b|\b(?:mean|squared|absolute|average|avg|test|train(?:ing)?|val(?:idation)?|relative|percentage|word|"
    r"char(?:acter)?|top-?\d|reconstruction|prediction|final|best|total) (?:\w{1,12} )?error\w?(?: ?\([\w@]{1,20}\))?"
    r"\W{1,4}\d|\bwould have\b|(?:;| -) using (?!\d)\w|"
    r"(?:errors?|fail(?:ed|ures?)?)(?: \w{1,12})?\W{1,40}(?:0|no|none|false|not active|n/a)\b|\bignor(?:e|ed|ing)\b|"
    r"\bretry(?:ing)?\b|\bfall(?:ing)? ?back\b|\bskip(?:s|ped|ping)?\b|\bharmless\b|\bwill be used instead\b|"
    r"[,.;:(-] ?(?:(?:now|so|will|we) )?(?:us(?:e|es|ing)|try(?:ing)?|resampl\w{1,4}|restarting|starting|"
    r"re-?init\w{1,10}|continu\w{1,3}|proceed\w{0,3}|disabl\w{1,3}|truncat\w{1,3}|assum\w{1,3}|default\w{0,3}|reconnect\w{0,3}|"
    r"keep(?:ing)?|reduc\w{1,3}|set(?:ting)?|train(?:ing)? from scratch) (?!\d)\w|"
    r"^\W{0,3}(?:wandb|mlflow|comet_ml|neptune|clearml|telemetry|sentry|gputil|visdom|tensorboardx?|libgl|libegl|"
    r"mesa-loader|glfw|alsa|qt\.\w{2,12}|xgboost|lightgbm)\b|"
    r"\b(?:re-?connected|recovered|succeeded|by default|patience)\b|"
    r"\b(?:will|would|may|might|can|could|to) (?:(?:cause|lead to|result in) (?:\w{1,20} )?(?:fail\w{0,4}|"
    r"crash\w{0,2})|fail|crash|abort|hang|be (?:killed|aborted|refused|evicted))\b|"
    r"\b(?:number|count|num|amount|rate|share|fraction|percent\w{0,3}|#)(?: of)?[ _](?:\w{1,12} )?"
    r"(?:fail\w{0,4}|crash\w{0,2}|abort\w{0,2}|kill\w{0,2}|timed out|refused|denied|corrupt\w{0,2})\b|"
    r"\b(?:killed|evicted|aborted|failed|dropped|refused) \d{1,9}(?:/| of|%| \w{2,20}s\b)"
)
"""What takes a word of failure back on the same line."""
_CONDITION = re.compile(r"(?i)\b(?:if|unless|in case|whether|might|may) [^.:;]{0,60}$")
"""Before a word of failure: it is spoken of, and has not come."""
SOFTLY_CHARACTERS = 160
"""So much of a line is searched for a level: further on a word is part of what is said."""
_SOFTLY = re.compile(
    r"(?i)(?:^|[\s\[(<|*!-])(?:warn(?:ing)?|info|note|hint|debug|notice|tip)(?:[\])>|:]| - | \*\*)|"
    r"\b[A-Za-z]{2,30}Warning: |^\W{0,4}(?:⚠|\(W\)|<W>|W: |W \[)"
)
"""Mere warnings, in forms that are no loggers'."""
_WARNED = ("WARNING: ", "Warning: ", "Warning  ", "warning: ")
CONTINUED = 4
"""Columns that a line stands further to the right which goes on with the one before it."""


def or_healthy(weighed: Weighing, lines: Sequence[LogLine]) -> Weighing:
    """`none` instead of `unknown` where nothing in the lines speaks of a failure; no line at all stays unknown."""
    non_empty = [line for line in lines if line.text.strip()]
    if weighed.fault_class is not FaultClass.UNKNOWN or not non_empty:
        return weighed
    speaking = [clue for clue in weighed.others if clue.weight >= SPEAKS_OF_FAILURE]
    if speaking and _fell_at_the_end(speaking, non_empty):
        return Weighing(FaultClass.NONE, FELL_AT_THE_END, weighed.alternatives, (), weighed.others)
    if speaking:
        return replace(weighed, confidence=min(weighed.confidence, CAUSE_UNTOLD))
    streams = by_stream(non_empty)
    if any(troubled(stream, streams) for stream in streams) or _machine_checked(non_empty):
        return replace(weighed, confidence=min(weighed.confidence, WORDS_ONLY))
    if any(done(line) for line in non_empty):
        confidence = ENDED_WELL
    elif any(step_of(line) is not None for line in non_empty) or any(went_on_until(stream) for stream in streams):
        confidence = GOES_ON
    elif _only_begun(non_empty):
        return replace(weighed, confidence=min(weighed.confidence, BEGUN_ONLY))
    else:
        confidence = SILENT
    return Weighing(FaultClass.NONE, confidence, weighed.alternatives, (), weighed.others)


def _machine_checked(lines: Sequence[LogLine]) -> bool:
    """True where a machine check was logged, and no line says that what it found was corrected."""
    texts = [line.text for line in lines]
    return any(_CHECKED in text for text in texts) and not any(_CORRECTED.search(text) for text in texts)


def _of_machine(line: LogLine) -> bool:
    """True for lines of kernels and clusters, which begin much and say nothing of a program."""
    return line.source in ("kernel", "event") or line.text.startswith(("NVRM:", "[drm"))


def _only_begun(lines: Sequence[LogLine]) -> bool:
    """True where few lines stand there, the last begins something, and none says that anything was done."""
    if len(lines) not in FEW_LINES or any(_of_machine(line) for line in lines):
        return False
    texts = [line.text[:SOFTLY_CHARACTERS] for line in lines]
    return _BEGINS.search(texts[-1]) is not None and not any(_BEGUN.search(text) for text in texts)


def _fell_at_the_end(speaking: Sequence[Clue], lines: Sequence[LogLine]) -> bool:
    """True where all that is reported is a crash or a farewell, after the training had said that it was done."""
    ended: dict[str, int] = {}
    for line in lines:
        if line.file not in ended and done(line):
            ended[line.file] = line.line
    crashed = any(fell_at_the_end(clue, ended.get(clue.file, 0)) for clue in speaking)
    harmless = SUMMARIES if crashed else FAREWELLS
    return all(
        fell_at_the_end(clue, ended.get(clue.file, 0))
        or (clue.rule in harmless and clue.line > ended.get(clue.file, clue.line))
        for clue in speaking
    )


def troubled(stream: Sequence[LogLine], streams: Sequence[Sequence[LogLine]]) -> bool:
    """True where a stream speaks of trouble in words that no rule knows, and does not go on after it."""
    found = [line for line in _own_words(stream) if speaks_of_trouble(line)]
    if not found:
        return False
    where = standing(stream)
    passed = max(lived_with(stream, streams, found[0].line), where.back)
    return any(
        (line.line == 0 or line.line >= passed)
        and line.line not in where.ignored
        and not (0 < where.done < line.line and CRASH.search(line.text))
        and not _survived(line, stream)
        for line in found
    )


def _survived(line: LogLine, stream: Sequence[LogLine]) -> bool:
    """True where enough is said after a word of failure, or a good end follows a weak one."""
    if line.line == 0 or line.source == "kernel":
        return False
    text = line.text[:2000]
    strong = _STRONG.search(text) is not None
    if calm_after(stream, line.line) >= (STRONG_LINES if strong else WEAK_LINES):
        return True
    last = stream[-1]
    if strong or last.line <= line.line or _FINISHED.match(last.text[:200]) is None:
        return False
    return level_of(text) is not Level.LOUD and _GIVES_UP.search(text) is None


def _own_words(stream: Sequence[LogLine]) -> Iterator[LogLine]:
    """The lines, but those that go on with a warning further to the right."""
    right = 0
    for line in stream:
        indent = len(line.text) - len(line.text.lstrip())
        if 0 < right <= indent < len(line.text):
            continue
        warned = line.text[indent:].startswith(_WARNED)
        right = indent + CONTINUED if warned else 0
        yield line


def speaks_of_trouble(line: LogLine) -> bool:
    """True where one line holds words of failure, is neither known noise nor a mere warning, and takes nothing back."""
    text = line.text[:2000]
    words = _KERNEL_WORDS if line.source == "kernel" else _WORDS
    level = Level.UNSAID if line.source == "kernel" else level_of(text)
    if level is Level.UNSAID and line.source != "kernel" and _SOFTLY.search(text[:SOFTLY_CHARACTERS]):
        return False
    if level in (Level.CALM, Level.WARNING) or not (level is Level.LOUD or words.search(text)):
        return False
    if level is not Level.LOUD and all(_CONDITION.search(text[: hit.start()]) for hit in words.finditer(text)):
        return False
    if position(_METRIC.sub("", text)) is not None and not words.search(_METRIC.sub("", text)):
        return False
    noise = any(match.rule.fault_class is FaultClass.NONE for match in match_line(text, line.source))
    return not noise and _ALL_IS_WELL.search(text) is None
