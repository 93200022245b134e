"""What the last lines of a process say of its failure: the exception that came first, for people and as a fingerprint.

A fingerprint is a short text that is the same in every attempt: without numbers, addresses, times and paths.
"""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Optional, Tuple

from workflows.wire import RankEnd

FINGERPRINT_CHARACTERS = 300
"""Longest fingerprint."""
WORDS_CHARACTERS = 200
"""What is quoted of a process at most."""
_TRACEBACK = "Traceback (most recent call last):"
_GROUP_BARS = re.compile(r"^\s*(?:\| {0,2})+(?=\S| )|^\s*\+ (?=Exception Group Traceback)|^\s*\+[-+ ]{3}.*$")
"""What Python draws around the members of an exception group."""
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line \d+, in (?P<function>.+)$')
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_PREFIX = re.compile(r"^\[?(?:rank|default)[ _-]?\d+\]?: ?", re.IGNORECASE)
_RELAYS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")
"""Exceptions of whoever started another process, which only say that it failed."""
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$|/torch/distributed/")
_NATIVE = re.compile(
    r"terminate called after throwing an instance of|^\s*what\(\): |[Aa]ssertion .{0,300}failed|[Ss]egmentation fault"
    r"|^Fatal Python error: |double free or corruption|CHECK failed|F\d{4} \d\d:\d\d"
)
_VOLATILE: Tuple[Tuple["re.Pattern[str]", str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "@"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "@"),
    (re.compile(r"(?:/[^\s/:'\",)]+)+/"), ""),
    (re.compile(r"\d+(?:\.\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)


class FirstException(NamedTuple):
    """The exception that began the last chain of tracebacks."""

    type: str
    message: str
    """"": it has none."""
    where: str
    """`file:function` of the innermost frame of the user's own code; "" where no frame is known."""

    @property
    def text(self) -> str:
        """As Python prints it: `ValueError: expected 3 channels`."""
        return f"{self.type}: {self.message}" if self.message else self.type


def fingerprint(lines: Iterable[str], exit_code: Optional[int], signal: Optional[int]) -> str:
    """The fingerprint of a rank's end.

    Args:
        lines: the last lines of the rank, oldest first.
        exit_code: None when it ended by a signal.
        signal: number of the signal, None when it exited by itself.

    Returns:
        `type@file:function: message` of the exception that came first, else the program's last line with its end,
        else the end alone; "" for an end without an error.
    """
    if exit_code == 0:
        return ""
    cleaned = _cleaned(lines)
    end = f"signal {signal}" if signal is not None else f"exit {exit_code}"
    raised = first_exception(cleaned)
    # A killed rank did not die of an exception that it printed and survived.
    if raised is not None and signal is None:
        at = f"{raised.type}{'@' + raised.where if raised.where else ''}"
        whole = f"{at}: {raised.message}" if raised.message else at
        return without_volatile_parts(whole)[:FINGERPRINT_CHARACTERS]
    native = _native(cleaned)
    if native:
        return f"{end}: {without_volatile_parts(native)}"[:FINGERPRINT_CHARACTERS]
    if signal is not None:
        return end
    last = _last(cleaned)
    return f"{end}: {without_volatile_parts(last)}"[:FINGERPRINT_CHARACTERS] if last else end


def last_words(end: RankEnd) -> str:
    """What a rank that failed of its own said of it, for people: `: ValueError: …`, or `, after it printed: …`.

    "" for an end without an error, one that was asked for, and a kill of which the program itself said nothing.
    """
    if end.requested or end.exit_code == 0:
        return ""
    cleaned = _cleaned(end.last_lines)
    # Python ends with 1 where nobody catches an exception; with another code a program goes on to say why.
    raised = first_exception(cleaned) if end.exit_code == 1 else None
    said = raised.text if raised is not None else _native(cleaned).strip()
    if said:
        return f": {said[:WORDS_CHARACTERS]}"
    last = _last(cleaned).strip() if end.signal is None else ""
    return f", after it printed: {last[:WORDS_CHARACTERS]}" if last else ""


def _cleaned(lines: Iterable[str]) -> List[str]:
    return [_GROUP_BARS.sub("", _PREFIX.sub("", line.rstrip())) for line in lines]


def _native(lines: List[str]) -> str:
    return next((line for line in lines if _NATIVE.search(line)), "")


def _last(lines: List[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")


def without_volatile_parts(text: str) -> str:
    """`text` without what differs between two runs of the same program."""
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text.strip()


def first_exception(lines: List[str]) -> Optional[FirstException]:
    """The exception that started the last chain of tracebacks; None where there is none.

    Where that one only says that another process failed, the last one before it that says more.
    """
    starts = [index for index, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]
    found: Optional[FirstException] = None
    while starts:
        first = starts.pop()
        while starts and _is_chained(lines[starts[-1] + 1 : first]):
            first = starts.pop()
        raised = _exception_at(lines[first + 1 :])
        if raised is not None and not raised.type.endswith(_RELAYS):
            return raised
        found = found or raised
    return found


def _is_chained(between: List[str]) -> bool:
    return any("exception" in line and line.endswith(":") for line in between)


def _exception_at(lines: List[str]) -> Optional[FirstException]:
    """The exception that ends the frames; of a group its first member."""
    frames: List[Tuple[str, str]] = []
    found: Optional[FirstException] = None
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append((frame["file"], frame["function"]))
        elif line and not line[0].isspace():
            raised = _RAISED.match(line)
            if raised is not None:
                found = FirstException(raised["type"], raised["message"] or "", _user_frame(frames))
                if not found.type.endswith("ExceptionGroup"):
                    return found
    return found


def _user_frame(frames: List[Tuple[str, str]]) -> str:
    users = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])] or frames
    if not users:
        return ""
    file, function = users[-1]
    return f"{file.rsplit('/', 1)[-1]}:{function}"
