"""What a failure looks like, as a short text that is the same in every attempt: no numbers, addresses, times, paths."""

from __future__ import annotations

import re
from typing import Iterable, List, Optional, Tuple

LIMIT = 300
"""Characters of a fingerprint."""
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line \d+, in (?P<function>.+)$')
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_PREFIX = re.compile(r"^\[?(?:rank|default)[ _-]?\d+\]?: ?", re.IGNORECASE)
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


def fingerprint(lines: Iterable[str], exit_code: Optional[int], signal: Optional[int]) -> str:
    """The fingerprint of a rank's end.

    Args:
        lines: the last lines of the rank, oldest first.
        exit_code: None when it ended by a signal.
        signal: number of the signal, None when it exited by itself.

    Returns:
        `type@file:function: message` of the exception that came first, else the program's own last words with its end,
        else the end alone; "" for an end without an error.
    """
    if exit_code == 0:
        return ""
    cleaned = [_PREFIX.sub("", line.rstrip()) for line in lines]
    end = f"signal {signal}" if signal is not None else f"exit {exit_code}"
    raised = _first_exception(cleaned)
    # A rank that was killed did not die of an exception that it had printed and survived.
    if raised and signal is None:
        return stable(raised)[:LIMIT]
    native = next((line for line in cleaned if _NATIVE.search(line)), "")
    if native:
        return f"{end}: {stable(native)}"[:LIMIT]
    if signal is not None:
        return end
    last = next((line for line in reversed(cleaned) if line.strip()), "")
    return f"{end}: {stable(last)}"[:LIMIT] if last else end


def stable(text: str) -> str:
    """`text` without what differs between two runs of the same program."""
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text.strip()


def _first_exception(lines: List[str]) -> str:
    """The exception that started the last chain of tracebacks."""
    starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return ""
    first = starts[-1]
    for earlier in reversed(starts[:-1]):
        if not any("exception" in line and line.endswith(":") for line in lines[earlier + 1 : first]):
            break
        first = earlier
    return _exception_at(lines[first + 1 :])


def _exception_at(lines: List[str]) -> str:
    frames: List[Tuple[str, str]] = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append((frame["file"], frame["function"]))
        elif line and not line[0].isspace():
            raised = _RAISED.match(line)
            if raised is None:
                continue
            where = _user_frame(frames)
            message = raised["message"]
            return f"{raised['type']}{'@' + where if where else ''}" + (f": {message}" if message else "")
    return ""


def _user_frame(frames: List[Tuple[str, str]]) -> str:
    users = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])] or frames
    if not users:
        return ""
    file, function = users[-1]
    return f"{file.rsplit('/', 1)[-1]}:{function}"
