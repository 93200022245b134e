"""How loud a line was printed: the level that loggers, glog, logfmt, JSON and TensorFlow put before the message."""

from __future__ import annotations

import re
from enum import Enum

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

LOOK_CHARACTERS = 110
"""A level further to the right belongs to the message."""
UNMISTAKABLE = 0.8
"""A rule of at least this weight is believed whatever the level of its line."""
TOLD_CALMLY = frozenset(
    {
        FaultClass.NUMERIC,
        FaultClass.STRAGGLER,
        FaultClass.STARTED_OVER,
        FaultClass.THERMAL_POWER,
        FaultClass.HANG,
        FaultClass.PREEMPTED,
        FaultClass.SCHEDULING,
        FaultClass.CONTROL_PLANE,
        FaultClass.NODE_LOST,
        FaultClass.PROCESS_KILLED,
        FaultClass.GPU_HARDWARE,
        FaultClass.UNKNOWN,
    }
)
"""Classes that programs report as information: a loss, a preemption, a restart, an exit code."""


class Level(Enum):
    """What a line's own prefix says of its weight."""

    CALM = "calm"
    WARNING = "warning"
    LOUD = "loud"
    UNSAID = "unsaid"


_WORD = re.compile(
    r"(?<![\w=./\-])(?:(?P<calm>INFO|DEBUG|TRACE|NOTICE|info(?=>))|(?P<warning>WARN(?:ING)?|[Ww]arning(?=:| {2}))|"
    r"(?P<loud>ERROR|FATAL|CRITICAL|SEVERE|PANIC))"
    r"(?=[\]:|)>,*]| - | -- | \(| \[| \d|\t| \||  | [\w./-]{3,80}\.\w{1,4}[:\]]|$)|"
    r"(?<=[\]:\d] )(?:(?P<calmly>INFO|DEBUG)|(?P<warned>WARNING|WARN)|(?P<loudly>ERROR|FATAL|CRITICAL)) "
)
_LETTER = re.compile(
    r"^(?:\[rank\d{1,6}\]:)?\[?(?P<glog>[IWEFD])\d{3,4} \d\d:\d\d:\d\d|"
    r"^\d{2,4}[-/]\d\d[-/]\d{2,4}[ T][\d:.]{8,16}: (?P<tf>[IWEF]) |"
    r"^\[?\d{4}-\d\d-\d\d [\d:,.]{8,15} (?P<ray>[IWEFDC]) \d|^\[(?P<short>[IWEFD]) [\w.]|"
    r"^(?P<bare>[IWEF]) [a-z][\w.-]{1,30}/[\w./-]{3,120}:\d{1,5}\] "
)
_TENSORFLOW = re.compile(r"(?<!\d)\d{2,4}[-/]\d\d[-/]\d{2,4}[ T]\d\d:\d\d:[\d.]{2,9}: (?P<tf>[IWEF]) [a-z]\w{2,20}/")
"""Behind whatever a launcher or a quotation put before it."""
_NCCL = re.compile(r"\b[NR]CCL WARN\b")
_FIELD = re.compile(r"\b(?:level|lvl|severity|levelname)(?:\" ?: ?\"|=\"?)(?P<word>[A-Za-z]{4,8})\b")
_KERNEL = re.compile(r"INFO: (?:task |rcu)")
_NAMES = {
    "I": Level.CALM, "D": Level.CALM, "W": Level.WARNING, "E": Level.LOUD, "F": Level.LOUD, "C": Level.LOUD,
    "info": Level.CALM, "debug": Level.CALM, "trace": Level.CALM, "notice": Level.CALM,
    "warn": Level.WARNING, "warning": Level.WARNING,
    "error": Level.LOUD, "fatal": Level.LOUD, "panic": Level.LOUD, "critical": Level.LOUD,
}  # fmt: skip
_GROUPS = {
    "calm": Level.CALM, "calmly": Level.CALM, "warning": Level.WARNING, "warned": Level.WARNING,
    "loud": Level.LOUD, "loudly": Level.LOUD,
}  # fmt: skip


def level_of(text: str) -> Level:
    """The level in the prefix of a cleaned line; kernel lines that begin with `INFO: task` are no information."""
    if _KERNEL.match(text):
        return Level.UNSAID
    letter = _LETTER.match(text) or _TENSORFLOW.search(text[:LOOK_CHARACTERS])
    if letter is not None and letter.lastgroup is not None:
        return _NAMES[letter[letter.lastgroup]]
    head = text[:LOOK_CHARACTERS]
    if _NCCL.search(head):
        return Level.WARNING
    word = _WORD.search(head)
    field = _FIELD.search(head)
    if field is not None and field["word"].lower() in _NAMES and (word is None or field.start() < word.start()):
        return _NAMES[field["word"].lower()]
    return _GROUPS[word.lastgroup] if word is not None and word.lastgroup is not None else Level.UNSAID


def believed(rule: Rule, level: Level) -> bool:
    """False where a weak rule matches a line that its program called mere information."""
    if level is not Level.CALM or rule.fault_class in TOLD_CALMLY:
        return True
    return rule.weight >= UNMISTAKABLE and not rule.fallback
