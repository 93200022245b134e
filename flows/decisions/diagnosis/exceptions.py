"""Python tracebacks in any log, and the second tier: what an exception is that no rule names.

Logs lose lines: the first frames, the source lines, even the `Traceback` line itself. So a frame alone begins a
traceback, and a line of somebody else does not end it. An exception without a rule is judged by its type, its words and
the files of its frames: a `KeyError` under `load_state_dict` is another matter than one in a data set's `__getitem__`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.exception_table import (
    CORRUPT,
    FRAMES,
    MESSAGES,
    OTHER,
    TYPES,
    USER,
    Hint,
    Part,
)
from flows.decisions.diagnosis.matching import MAX_CHARACTERS, RuleMatch, rule_by_name
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.policy import POLICY
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

KEPT_FRAMES = 12
"""Innermost frames kept of a traceback: a checkpoint's loader stands that far outside of the line that failed."""
STRANGERS = 30
"""Lines of others that may stand between two lines of one traceback."""
MESSAGE_CHARACTERS = 600
"""What is kept of a message over several lines."""

_HEAD = "(most recent call last)"
_SURVIVED = ("--- Logging error ---", "Call stack:", "Exception ignored in")
"""What Python prints before the traceback of an exception that ends nothing."""
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
WRAPPER = "Caught "
"""torch re-raises a worker's exception as `Type: Caught Type in DataLoader worker process 0.`, the original follows."""
LOADER, LOADER_FRAME = "DataLoader worker", "torch/utils/data/_utils/fetch.py:fetch"
"""What the wrapper says of a worker stands for its frames, where the log has lost them."""
_DATED = re.compile(r"^\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?:Z|[+-]\d\d:?\d\d)? ")
_JSON = re.compile(r'^\s*"(?:message|py_callstack)": "')
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]{0,120})(?:: ?(?P<message>.*))?$")
_EXCEPTION = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Timeout|Failed|Failure|Fault|NotFound|NotSupported|Invalid\w*|"
    r"Mismatch\w*|Denied|Canceled|Cancelled|Timedout|Unavailable)(?:\([\w.]{1,80}\))?$"
)
_FRAME = re.compile(r'^\s*File \\?"(?P<file>[^"]{1,400}?)\\?", line \d+(?:, in ?(?P<function>.{0,200}))?$')
_NOTEBOOK = re.compile(
    r"^(?:File )?(?P<file>[~/<][^\s\"]{1,300}?(?:\.py|>))(?::\d{1,6}, | )in "
    r"(?P<function>[\w<>.]{1,120})(?:\(.{0,300}\))?$"
)
"""IPython, new and old: no quotation marks around the path."""
_RICH = re.compile(r"^[│|] (?P<file>[^\s│]{1,300}\.py):\d+ in ?(?P<function>[\w<>.]{0,200})")
_RICH_PATH = re.compile(r"^[│|] (?P<file>[^\s│]{1,300}\.py): *[│|]$")
_RICH_PLACE = re.compile(r"^[│|] \d{1,6} in ?(?P<function>[\w<>.]{0,200})")
"""The same where the path is so long that the line breaks."""
_NEXT_LINE = re.compile(r"^(?:\[|\d{4}-|[A-Z]{4,}\b|Traceback|[IWEF]\d{4} |\d{1,3}%)")
"""What begins a line of its own, and does not go on with the last one's message."""
RICH_CHARACTERS = 55
"""Rich breaks messages at the terminal's width: a shorter line was not broken."""
_SAYS_RAISED = Cue(_HEAD, *_SURVIVED, *_CHAINS, 'file "', 'file \\"', ".py:", ".py in", of=(_FRAME, _RICH, _RICH_PATH))
_CODE = re.compile(r"^(?:\s{1,400}(?![\s^~|│])|[│|] ❱ *\d{1,6} [│|]?|-{1,8}> {0,3}\d{1,6} )(?P<code>.{3,400})")
"""A frame's source line, as Python, Rich and IPython print it."""
_RAISING = re.compile(r"^raise (?P<type>[A-Za-z_][\w.]{0,100})\((?:f?['\"](?P<message>[^'\"{}]{0,300}))?")
"""A source line that raises, with a message that is written out."""
_TORN = re.compile(r"^\s{0,8}File\s*$")
TORN_CHARACTERS = 400
_BOX = ("│", "╭", "╰", "|")

_NAMED = re.compile(
    r"(?:^|(?<=[\s:'\"(\[<]))(?P<type>(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}"
    r"(?:Error|Exception|Interrupt|Exit|Iteration)|"
    r"[a-z_][\w.]{0,80}[._](?:errors?|exceptions?|exc|errorfactory)\.[A-Z]\w{2,60})"
    r"(?:\([\w.]{1,80}\))?(?:'>)?(?:$|[,:] ?(?P<message>.*))"
)

HINTS: tuple[Hint, ...] = (*TYPES, *MESSAGES, *FRAMES)
ANYBODY = 2.0
"""Points of the user's own code where nothing else is known."""
NOTHING = 1.85
"""Weight of everything that no hint thinks of, so that no hint at all leaves the user's code at 0.8."""
MOST = 0.93
"""No such judgement is surer."""
NAMELESS = ("python-exception", "logged-exception")
"""Rules that know an exception by its form alone."""
CUT = "traceback-cut"
"""Name of what a traceback says that is cut off before its exception."""
CUT_WEIGHT, CUT_FACTOR = 0.3, 0.7
"""That something was raised of which nobody knows what it was; what frames alone are worth that say more."""
WRAPPED_FACTOR = 0.5
"""What an exception is worth that only reports a worker's: the worker's own stands beside it, unless it was cut."""
VAGUE = ("connection-error",)
"""Rules of exceptions with several owners: replaced only where the hints are surer."""
_REPLACED = frozenset({*NAMELESS, *VAGUE})


@dataclass(frozen=True)
class Raised:
    """One exception of a traceback."""

    type: str
    """Its name; "" where the traceback is cut off before it."""
    message: str
    frames: tuple[str, ...]
    """`path:function` of the last frames, the innermost last; paths end with a library's own, as `torch/hub.py`."""
    line: LogLine
    """The line that names the exception."""
    consequence: bool = False
    """True where it was raised while handling an earlier one, caused by it, or only wraps it."""
    code: str = ""
    """Source lines of the two innermost frames, the innermost last; "" where the log does not hold them."""
    cause: Raised | None = None
    """The exception of which this is a consequence; None where the log does not hold it."""


@dataclass
class _Reader:
    found: list[Raised] = field(default_factory=list[Raised])
    frames: list[str] = field(default_factory=list[str])
    inside: bool = False
    survived: bool = False
    chained: bool = False
    wrapped: bool = False
    loose: bool = False
    """No `Traceback` line was seen, or the lines have lost their indentation: only names of exceptions end it."""
    strangers: int = 0
    growing: int = 0
    """Lines that may still belong to the last exception's message."""
    before: str = ""
    boxed: bool = False
    """The traceback came in a box, as Rich draws it: its messages are broken over several lines."""
    path: str = ""
    codes: tuple[str, ...] = ()
    innermost: LogLine | None = None
    """The last source line that was read."""
    framed: LogLine | None = None
    """The line of the last frame."""
    torn: str = ""
    """A frame's line that was broken at the terminal's width, as far as it was read."""
    doubted: tuple[str, ...] | None = None
    """Frames before an end that does not sound like an exception's name: where more frames follow, it was none."""

    @property
    def idle(self) -> bool:
        """True where only what begins a traceback can mean anything."""
        return not (self.inside or self.growing or self.torn or self.path or self.before.startswith(_SURVIVED))

    def read(self, text: str, line: LogLine) -> None:
        text = self._mended(text)
        if self.torn:
            return
        ended = len(self.found)
        if _HEAD in text:
            self._begin(text)
        elif text.startswith(_CHAINS):
            self.chained, self.growing = True, 0
        elif self._framed(text):
            self.framed = line
        elif not self.inside:
            self._grow(text)
        elif (code := _CODE.match(text)) is not None:
            self.codes = (*self.codes[:-1], self.codes[-1] or code["code"].strip()) if self.codes else ()
            self.innermost = line
        elif text.strip() and not text[0].isspace() and not text.startswith(_BOX):
            self._end(text, line)
        self.doubted = self.doubted if len(self.found) > ended else None
        self.before = text or self.before

    def _framed(self, text: str) -> bool:
        """True where the line is a frame's, or the first half of one."""
        if (frame := _FRAME.match(text) or _RICH.match(text) or _NOTEBOOK.match(text)) is not None:
            self._frame(frame["file"], frame["function"] or "", text)
        elif (path := _RICH_PATH.match(text)) is not None:
            self.path = path["file"]
        elif self.path and (place := _RICH_PLACE.match(text)) is not None:
            self._frame(self.path, place["function"], text)
        else:
            return False
        return True

    def _mended(self, text: str) -> str:
        """The text; a frame's line that was broken is held back until it is whole."""
        if self.torn:
            whole = f"{self.torn}{text.strip()}"
            self.torn = whole if len(whole) < TORN_CHARACTERS and ", in " not in whole else ""
            return whole
        self.torn = "  File " if self.inside and _TORN.match(text) else ""
        return text

    def _begin(self, text: str) -> None:
        self.inside, self.loose, self.strangers, self.growing = True, False, 0, 0
        self.survived = self.before.startswith(_SURVIVED)
        self.wrapped = text.lstrip().startswith("Original ")
        self.frames = []

    def _frame(self, path: str, function: str, text: str) -> None:
        if self.doubted is not None and text[0].isspace():
            self.found.pop()
            self.inside, self.frames = True, list(self.doubted)
        elif not self.inside:
            self.inside, self.loose, self.wrapped, self.frames = True, True, False, []
            self.survived = self.before.startswith(_SURVIVED)
        self.loose = self.loose or not text[0].isspace()
        self.strangers, self.growing = 0, 0
        self.boxed, self.path = text.startswith(_BOX), ""
        self.frames = [*self.frames[1 - KEPT_FRAMES :], f"{_own(path)}:{function.strip()}"]
        self.codes = (*self.codes[-1:], "")

    def _end(self, text: str, line: LogLine) -> None:
        hit = _RAISED.match(text)
        if hit is None or ((self.loose or self.strangers) and not _EXCEPTION.search(hit["type"])):
            self.strangers += 1
            self.inside = self.strangers < STRANGERS
            if not self.inside:
                self.cut_off()
            return
        if not self.survived:
            code = "\n".join(self.codes)[:MESSAGE_CHARACTERS]
            self._raise(Raised(hit["type"], hit["message"] or "", tuple(self.frames), line, self.chained, code))
            self.doubted = None if _EXCEPTION.search(hit["type"]) else tuple(self.frames)
        self.inside, self.chained, self.frames, self.codes = False, False, [], ()

    def cut_off(self, at_end: bool = False) -> None:
        """The traceback has no end: its last source line may say itself what it raises.

        `at_end`: nothing at all follows it, so an exception was raised of which not even the type is known.
        """
        line, raising = self.innermost, _RAISING.match(self.codes[-1]) if self.codes else None
        if self.survived:
            return
        if line is not None and raising is not None and _EXCEPTION.search(raising["type"]):
            message = (raising["message"] or "").strip()
            self._raise(Raised(raising["type"], message, tuple(self.frames), line, self.chained, self.codes[-1]))
        elif at_end and self.framed is not None and self.frames:
            code = "\n".join(self.codes)[:MESSAGE_CHARACTERS]
            self._raise(Raised("", "", tuple(self.frames), self.framed, self.chained, code))
        self.growing = 0

    def _raise(self, raised: Raised) -> None:
        last = self.found[-1] if self.found else None
        if self.wrapped and last is not None and last.message.startswith(WRAPPER):
            frames = raised.frames if raised.frames or LOADER not in last.message else (LOADER_FRAME,)
            self.found[-1] = replace(last, consequence=True, cause=replace(raised, frames=frames))
            raised = replace(raised, consequence=last.consequence, cause=last.cause, frames=frames)
        elif self.chained:
            raised = replace(raised, cause=last)
        self.found.append(raised)
        self.growing = 1 if not raised.message else 4

    def _goes_on(self, text: str) -> bool:
        """Does a line go on with the message of the last exception?"""
        if text[0].isspace() or not self.found[-1].message:
            return True
        return self.boxed and len(self.before) > RICH_CHARACTERS and _NEXT_LINE.match(text) is None

    def _grow(self, text: str) -> None:
        if self.growing and text.strip() and self._goes_on(text):
            last = self.found[-1]
            message = f"{last.message} {text.strip()}".strip()[:MESSAGE_CHARACTERS]
            self.found[-1] = replace(last, message=message)
            self.growing -= 1
        elif text.strip():
            self.growing = 0


def tracebacks(lines: Sequence[LogLine]) -> tuple[Raised, ...]:
    """The exceptions in the lines of one source, in order."""
    reader = _Reader()
    for line in lines if _SAYS_RAISED.anywhere(lines) else ():
        if reader.idle and not _SAYS_RAISED.holds(line.text):
            reader.before = line.text or reader.before
            continue
        for text in _parts(line.text):
            reader.read(text, line)
    if reader.inside:
        reader.cut_off(at_end=True)
    return tuple(reader.found)


def named_exception(text: str) -> tuple[str, str]:
    """Type and message of the exception that a line names somewhere; two empty texts where it names none."""
    hit = _NAMED.search(text)
    return (hit["type"], hit["message"] or "") if hit is not None else ("", "")


def _parts(text: str) -> Iterable[str]:
    """A line as it was printed; one that holds a whole traceback as a JSON text is taken apart."""
    text = _DATED.sub("", text)
    json = _JSON.match(text)
    if json is not None:
        text = text[json.end() :].rstrip().rstrip(",").rstrip('"')
    return text.split("\\n") if _HEAD in text and "\\n" in text else (text,)


def _own(path: str) -> str:
    """A path without what differs between machines: a library's own path, else the last four parts."""
    path = path.replace("\\", "/")
    for mark in ("site-packages/", "dist-packages/"):
        if mark in path:
            return path.rsplit(mark, 1)[1]
    return "/".join(path.split("/")[-4:])


@dataclass(frozen=True)
class ExceptionClass:
    """What an exception is."""

    fault_class: FaultClass
    weight: float
    """Probability, 0 to 1, that the class is right where only the exception is known."""
    sure: bool
    """Some hint spoke for the class: it is more than a default."""


@dataclass(frozen=True)
class LineMatches:
    """A line's matches after the second tier."""

    matches: tuple[RuleMatch, ...]
    sure: bool


@lru_cache(maxsize=4096)
def judge(
    type_name: str, message: str, frames: tuple[str, ...] = (), trained: bool = False, code: str = ""
) -> ExceptionClass:
    """The class that an exception speaks for.

    `frames`: `path:function`, the innermost last. `trained`: steps were made before it. `code`: source lines of the
    innermost frames, where the log holds them.
    """
    parts: dict[Part, str] = {
        "type": type_name,
        "message": message[:MAX_CHARACTERS],
        "frames": "\n".join(frames),
        "inner": frames[-1] if frames else "",
        "code": code,
    }
    points: dict[FaultClass, float] = {USER: ANYBODY}
    spoken: set[FaultClass] = set()
    for hint in HINTS:
        if all(regex.search(parts[part]) for part, regex in hint.regexes):
            for kind, value in hint.points:
                points[kind] = points.get(kind, 0.0) + value
                spoken |= {kind} if value > 0 else set()
    for kind in points if trained else ():
        points[kind] += POLICY[kind].log_odds_after_steps
    best = max(points, key=lambda kind: (points[kind], kind.value))
    total = math.fsum(math.exp(value) for value in points.values()) + NOTHING
    return ExceptionClass(best, round(min(math.exp(points[best]) / total, MOST), 3), best in spoken)


def second_tier(matches: tuple[RuleMatch, ...], text: str, raised: Raised | None, trained: bool) -> LineMatches:
    """The matches of a line, an exception that no rule names judged by what it says.

    `trained`: steps were made before it; `raised`: the exception whose traceback ends with the line.
    """
    if raised is None and matches and matches[0].rule.name not in _REPLACED:
        return LineMatches(matches, True)
    if raised is not None and not raised.type:
        return _cut(matches, raised)
    names = {match.rule.name for match in matches}
    if names - _REPLACED or not (names or raised):
        return LineMatches(matches, bool(matches))
    base = rule_by_name(NAMELESS[0])
    type_name, message = (raised.type, raised.message) if raised is not None else named_exception(text)
    if base is None or not type_name:
        return LineMatches(matches, False)
    judged = (
        judge(type_name, message, raised.frames, trained, raised.code)
        if raised is not None
        else judge(type_name, message, (), trained)
    )
    if names & set(VAGUE) and not _surer(judged, matches):
        return LineMatches(matches, False)
    form = next((match.rule for match in matches if match.rule.name in NAMELESS), base)
    share = form.weight / base.weight * (WRAPPED_FACTOR if message.startswith(WRAPPER) else 1.0)
    return LineMatches((RuleMatch(_rule(form, judged, share)),), judged.sure)


def _cut(matches: tuple[RuleMatch, ...], raised: Raised) -> LineMatches:
    """What a traceback without its exception says: its frames may tell of a checkpoint or a store, not of the code."""
    base = rule_by_name(NAMELESS[0])
    if base is None:
        return LineMatches(matches, False)
    judged = judge("", "", raised.frames, code=raised.code)
    if judged.sure and judged.fault_class not in (USER, OTHER):
        return LineMatches((*matches, RuleMatch(_rule(base, judged, CUT_FACTOR))), True)
    told = replace(base, name=CUT, fault_class=OTHER, weight=CUT_WEIGHT, blames="nobody")
    return LineMatches((*matches, RuleMatch(told)), False)


def _surer(judged: ExceptionClass, matches: Sequence[RuleMatch]) -> bool:
    kind = judged.fault_class
    vague = kind is USER or POLICY[kind].exception_is_echo
    return not vague and judged.weight > max(match.rule.weight for match in matches)


def _rule(base: Rule, judged: ExceptionClass, share: float) -> Rule:
    """The rule that a judgement stands for; `share` is what the form of the line leaves of its weight."""
    kind, policy = judged.fault_class, POLICY[judged.fault_class]
    weight = judged.weight * min(share, 1.0)
    if kind is USER:
        return replace(base, weight=weight)
    return replace(
        base,
        name=f"exception-{kind.value.replace('_', '-')}",
        fault_class=kind,
        weight=min(weight, 0.25) if kind is OTHER else weight,
        blames="code" if policy.exception_blames_code else "nobody",
        echo=policy.exception_is_echo,
        advice="the file that could not be read is named beside it" if kind is CORRUPT else "",
    )
