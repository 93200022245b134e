"""Log lines made comparable: without colours, bars and launchers' prefixes, with their level and their time.

Only differences of time matter. A stamp without a zone is read as UTC, one without a year as of the clock's year.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.policy import POLICY
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import NEVER_STARTED
from workflows.wire import LINE_PREFIX

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CTIME = r"(?:[A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}"
_SERVICE = r"(?:worker|master|trainer|node|head|launcher)"
_PREFIXES = (
    re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d):? (?:std(?:out|err) [FP] )?"),
    re.compile(r"^\[?(?:default|trainer|worker)[ _-]?(?P<rank>\d{1,7})(?:\|\d{1,4})?\]?: ?", re.IGNORECASE),
    re.compile(r"^\[?rank[ _-]?(?P<global>\d{1,7})\]?: ?", re.IGNORECASE),
    re.compile(
        r"^\[?rank[ _-]?(?P<global>\d{1,7}),? ?(?:on |@ ?|\()(?:the )?(?:host(?:name)?[ =:]{1,2}|node[ =:]{1,2})?"
        r"(?P<node>[A-Za-z][\w.-]{0,80}?)\)?\]?: ",
        re.IGNORECASE,
    ),
    re.compile(r"^\[(?P<node>[a-z][\w.-]{0,60}?\d[\w.-]{0,30}):(?P<rank>\d)\]:? "),
    re.compile(r"^\[rank: (?P<global>\d{1,7})\] "),
    re.compile(rf"^(?:{_CTIME})?\[\d{{1,4}},(?P<global>\d{{1,7}})\]<std(?:out|err)>: ?"),
    re.compile(r"^\[\d{1,4},mpirank:(?P<global>\d{1,7}),(?P<node>[\w.-]{1,80})\]<std(?:out|err)>: ?"),
    re.compile(r"^\((?:[\w.:<>()\- ]{1,80} )?pid=\d{1,9}(?:, ip=\[?(?P<node>[\w.:]{3,64}?)\]?)?\) ?"),
    re.compile(r"^\((?:raylet|gcs_server|autoscaler)(?:, ip=\[?(?P<node>[\w.:]{3,64}?)\]?)?\) "),
    re.compile(r"^\((?:head|worker\d{1,4}), rank=\d{1,5}, pid=\d{1,9}(?:, ip=(?P<node>[\w.:]{3,64}))?\) "),
    re.compile(r"^[A-Za-z][\w.-]{0,60}/\d{1,4} (?=\[(?:default|rank|trainer|worker))"),
    re.compile(r"^ {0,16}(?:\* \d{1,6} x|\|) (?=\[?rank)"),
    re.compile(r"^\[pod/[\w.-]{1,120}/[\w.-]{1,80}\] "),
    re.compile(rf"^(?P<node>[\w.-]{{0,60}}{_SERVICE}[\w.-]{{0,20}}[-._]\d{{1,4}}) {{1,30}}\| (?=\S)"),
)
"""Kubernetes, torchrun's `--tee`, PyTorch and our own launcher, Lightning, mpirun, SageMaker, Ray, SkyPilot, kubectl's
`--prefix`, docker compose, TorchX, programs that name host and rank; applied in turn, each at most twice. A `global`
rank is right whatever a file is named."""
_ANY_PREFIX = re.compile(
    rf"\d{{4}}-\d\d-\d\dT|(?i:\[?(?:default|trainer|worker|rank)[ _-]?\d{{1,7}}(?:\|\d{{1,4}})?\]?:)|"
    rf"(?i:\[?rank[ _-]?\d{{1,7}},? ?(?:on |@|\())|\[[a-z][\w.-]{{0,92}}:\d\]|[A-Za-z][\w.-]{{0,60}}/\d{{1,4}} \[|"
    rf"{_CTIME}\[\d| {{0,16}}(?:\* \d{{1,6}} x|\|) \[?rank|\[(?:rank:|\d{{1,4}},|pod/)|\(|"
    rf"[\w.-]{{0,60}}{_SERVICE}[\w.-]{{0,40}} {{1,30}}\|"
)
"""How each of them begins: most lines have none."""
_LABEL = re.compile(r"^ {0,6}(?P<rank>\d{1,6}): ")
"""srun's `--label`. A line whose rank is known already may begin with a number for other reasons."""
_DOCKER = '{"log":"'


def uncoloured(text: str) -> str:
    """The text without the codes that colour it on terminals."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def clean(line: LogLine) -> LogLine:
    """The line without colours, overwritten progress bars and launchers' prefixes; a rank named there is taken over."""
    text = uncoloured(_unwrapped(line.text[:8000])).rstrip("\r\n")
    if "\r" in text:
        text = text.rsplit("\r", 1)[-1]
    rank, node, text, named = _taken_off(line.rank, line.node, text)
    label = None if named or not text[:7].lstrip(" ")[:1].isdigit() else _LABEL.match(text)
    if label is not None and rank in (None, int(label["rank"])):
        rank, node, text, _ = _taken_off(int(label["rank"]), node, text[label.end() :])
    if len(text) == len(line.text) and rank == line.rank and node == line.node:
        return line  # making another one takes longer than all that was read
    return LogLine(text, line.source, rank, node, line.at, line.file, line.line)


def _taken_off(rank: int | None, node: str, text: str) -> tuple[int | None, str, str, bool]:
    """Rank and node from the prefixes of a text, the text without them, and whether one named a rank."""
    named = False
    for prefix in _PREFIXES * 2 if _ANY_PREFIX.match(text) else ():
        hit = prefix.match(text)
        if hit is None:
            continue
        text, groups = text[hit.end() :], hit.groupdict()
        node = node or groups.get("node") or ""
        if groups.get("global"):
            rank, named = int(groups["global"]), True
        elif groups.get("rank"):
            rank, named = (int(groups["rank"]) if rank is None else rank), True
        if _ANY_PREFIX.match(text) is None:
            break
    return rank, node, text, named


def _unwrapped(text: str) -> str:
    """What a program printed, of a line of Docker's JSON files."""
    if not text.startswith(_DOCKER):
        return text
    try:
        log = json.loads(text).get("log")
    except ValueError:
        return text
    return log if isinstance(log, str) else text


_OURS = re.compile(r"(?:\S{0,40}Z )?launcher: |.{0,120}?" + re.escape(LINE_PREFIX) + r"\{")


def is_ours(line: LogLine) -> bool:
    """True for what our own launcher says: its sentences, and its records, which quote what ranks printed."""
    return _OURS.match(line.text) is not None


TOLD_BY_RANKS = frozenset({"completed", "rank-failed", "told-to-stop"})
"""Ends of launchers whose detail says no more than the ends of the ranks."""


def gather(evidence: Evidence) -> tuple[LogLine, ...]:
    """Every line of the evidence, cleaned: those given, the ranks' last ones, and the workflow's message; no copies."""
    lines = list(evidence.lines)
    for termination in evidence.terminations:
        for end in termination.ranks:
            lines += (LogLine(x, "rank", end.rank, termination.node, None) for x in end.last_lines)
        if termination.detail and termination.reason not in TOLD_BY_RANKS:
            lines.append(LogLine(termination.detail, "launcher", None, termination.node, None))
    lines += (
        LogLine(pod.message, "event", None, pod.node)
        for pod in evidence.pods
        if pod.reason in NEVER_STARTED and pod.message
    )
    if evidence.workflow_message:
        lines.append(LogLine(evidence.workflow_message, "event"))
    # Of failed pods it only says again what they and their ranks said.
    if evidence.detail and evidence.signal is not Signal.POD_FAILED:
        lines.append(LogLine(evidence.detail, "event"))
    return _without_copies(clean(line) for line in lines)


def by_stream(lines: Iterable[LogLine]) -> tuple[tuple[LogLine, ...], ...]:
    """Lines grouped by where they came from, the order within each kept."""
    streams: dict[tuple[str, str, int | None, str], list[LogLine]] = {}
    for line in lines:
        streams.setdefault((line.source, line.node, line.rank, line.file), []).append(line)
    return tuple(tuple(stream) for stream in streams.values())


def _without_copies(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """A rank's last lines usually stand in its log too: a copy without a time gives way to the one that has it."""
    lines = tuple(lines)
    timed = {(line.text, line.rank) for line in lines if line.at is not None or line.file}
    return tuple(x for x in lines if x.at is not None or x.file or (x.text, x.rank) not in timed)


LEVEL_LOOK_CHARACTERS = 110
"""A level further to the right belongs to the message."""
UNMISTAKABLE = 0.8
"""A rule of at least this weight is believed whatever the level of its line."""


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
_LEVEL_NAMES = {
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
    letter = _LETTER.match(text) or _TENSORFLOW.search(text[:LEVEL_LOOK_CHARACTERS])
    if letter is not None and letter.lastgroup is not None:
        return _LEVEL_NAMES[letter[letter.lastgroup]]
    head = text[:LEVEL_LOOK_CHARACTERS]
    if _NCCL.search(head):
        return Level.WARNING
    word = _WORD.search(head)
    field = _FIELD.search(head)
    if field is not None and field["word"].lower() in _LEVEL_NAMES and (word is None or field.start() < word.start()):
        return _LEVEL_NAMES[field["word"].lower()]
    return _GROUPS[word.lastgroup] if word is not None and word.lastgroup is not None else Level.UNSAID


def believed(rule: Rule, level: Level) -> bool:
    """False where a weak rule matches a line that its program called mere information."""
    if level is not Level.CALM or POLICY[rule.fault_class].reported_calmly:
        return True
    return rule.weight >= UNMISTAKABLE and not rule.fallback


STAMP_LOOK_CHARACTERS = 120
"""A stamp further to the right belongs to the message."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = {name: number for number, name in enumerate(_MONTHS, 1)}
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = re.compile(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _]{_CLOCK} ?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_AMERICAN = re.compile(rf"\b(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}}) {_CLOCK}")
_GLOG = re.compile(rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_CLOCK}")
_SYSLOG = re.compile(rf"\b(?P<name>{'|'.join(MONTHS)}) (?P<day>[ \d]\d) {_CLOCK}(?: (?P<year>\d{{4}}))?")


@dataclass
class Clock:
    """The year that stamps without one belong to: that of the last stamp that had one."""

    year: int = 2000


def stamp(text: str, clock: Clock) -> float | None:
    """When the line says it was printed, Unix seconds; None where it does not say.

    `clock` completes stamps without a year, and is set by those that have one.
    """
    head = text[:STAMP_LOOK_CHARACTERS]
    for pattern, read in _FORMATS:
        hit = pattern.search(head)
        if hit is not None:
            try:
                return read(hit, clock)
            except ValueError:
                continue
    return None


def _whole(hit: re.Match[str], clock: Clock) -> float:
    clock.year = int(hit["year"])
    return _seconds(hit, clock.year, int(hit["month"]))


def _iso(hit: re.Match[str], clock: Clock) -> float:
    clock.year = int(hit["year"])
    zone = hit["zone"]
    shift = UTC if zone in (None, "Z") else timezone(_offset(zone))
    return _seconds(hit, clock.year, int(hit["month"]), shift)


def _offset(zone: str) -> timedelta:
    total = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -total if zone[0] == "-" else total


def _glog(hit: re.Match[str], clock: Clock) -> float:
    return _seconds(hit, clock.year, int(hit["month"]))


def _syslog(hit: re.Match[str], clock: Clock) -> float:
    if hit["year"]:
        clock.year = int(hit["year"])
    return _seconds(hit, clock.year, MONTHS[hit["name"]])


def _seconds(hit: re.Match[str], year: int, month: int, zone: timezone = UTC) -> float:
    fraction = float(f"0.{hit['fraction']}") if hit["fraction"] else 0.0
    day, hour, minute, second = (int(hit[word]) for word in ("day", "hour", "minute", "second"))
    return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone).timestamp() + fraction


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Clock], float]], ...] = (
    (_ISO, _iso),
    (_AMERICAN, _whole),
    (_GLOG, _glog),
    (_SYSLOG, _syslog),
)
