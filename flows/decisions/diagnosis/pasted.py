"""Logs as people paste them: broken at a terminal's width, glued into one line, quoted, or with escaped line ends.

What a program printed as one line is read as one line again. Nothing is guessed where a log is as it was printed: lines
are joined where the text is as wide as a terminal and goes on as no line begins, or where a rule holds for two lines
together and for neither alone; a line is taken apart where it is most of the log and holds many beginnings of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from flows.decisions.diagnosis.matching import ALL, MAX_CHARACTERS

Numbered = tuple[int, str]
"""The number of a line, and what it says."""

MOST_PASTED = 2000
"""Nobody pastes more lines by hand."""
MOST_GLUED = 3
"""A log of at most so many lines may be a whole one that was glued together."""
GLUED_CHARACTERS = 250
"""No shorter line is a whole log."""
WINDOW_CHARACTERS, OVERLAP_CHARACTERS = 1200, 300
"""Where no beginning of a line is known, a glued log is read in pieces of this size, which share so much."""
WIDTHS = range(60, 260)
"""Columns of terminals and of what people paste into."""
FULL_SHARE = 0.5
"""So many of the full lines must go on as no line begins, before a width is believed."""
QUOTED_SHARE = 0.9
"""So many of the lines stand in quotation marks before these are taken off."""

_ESCAPED = re.compile(r"\\r?\\n|\\n")
_STAMP = r"(?:\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
_BEGINS = re.compile(
    rf"^(?:\s{{2,}}\S|[\[({{<|+=*#>~^-]|{_STAMP}|[A-Z]{{3,}}\b|[IWEF]\d{{4}} |\d\d:\d\d:\d\d\b|"
    r"Traceback|During handling|The above exc|"
    r"[\w.]{2,60}(?:Error|Exception|Warning|Exit|Interrupt)(?:: |$)|[\w./-]{1,60}:\d+:|[\w./-]{2,40}: |\d{1,9}[:/ %]|"
    r"(?i:epoch|step|iter\w{0,6}|train\w{0,4}|srun|slurm\w{0,6}|loading|saving)\b|[\w.-]{2,60}:\d+:\d+ \[|$)"
)
"""How lines begin."""
_GLUED = re.compile(
    r"(?<=\S)[ \t]*(?=(?:\[rank ?\d+\]:|\[default\d+\]:|\[\d+,\d+\]<std)|Traceback \(most recent call last\):|"
    r"During handling of the above exception|The above exception was the direct cause)|"
    rf"(?<![\w/:=\"'.\[(-])[ \t]*(?<![\d-])(?=\[?{_STAMP}|[IWEF]\d{{4}} \d\d:\d\d:\d\d|"
    r"\[ {0,5}\d{1,7}\.\d{6}\] )|"
    r"[ \t]+(?=File \"[^\"]{1,300}\", line \d)|[ \t]+(?=[NR]CCL (?:WARN|INFO) )|"
    r"(?<!^)[ \t]*(?=(?:WARNING|ERROR|INFO|CRITICAL|DEBUG):[a-zA-Z_][\w.]{3,80}:)|(?<=\S)[ \t]+(?=srun: |slurmstepd: )|"
    r"(?<=\S)[ \t]+(?=(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{1,40}(?:Error|Exception|Interrupt|Exit): )|"
    r"(?<=[})|]) (?=\{'loss'| iteration +\d+/| ?[Ee]poch[ :\[]*\d)|(?<=[^\s\]]) {1,3}(?=iteration {1,8}\d{1,9}/)|"
    r"(?<=\d) (?=[Ss]tep[ :]{1,2}\d{1,9}\b)|[ \t]+(?=nccl\w{4,24}Error: |Last error:)|(?<=Last error:)[ \t]+"
)
"""Before what begins a line in the middle of one."""
_SOURCE = re.compile(r"(?P<frame>File \"[^\"]{1,300}\", line \d{1,7}, in [\w<>.]{1,120})[ \t]*(?P<code>\S.*)?$")
_SHAPE = re.compile(r"\d+")
_COLUMNS = re.compile(r"\S {3,}(?=\S)")
_WHOLE = re.compile(r"(?:s/it|it/s)\]$")
"""A progress bar's last column: nothing of its line follows."""
_SENTENCE_ENDS = (".", "!", "?")
_MARKS = re.compile(r"^\s*(?P<mark>['\"`])(?P<text>.*)(?P=mark)[,;]?\s*$")


def relined(texts: Sequence[str], first: int = 1) -> list[Numbered]:
    """The lines as they were printed, each with the number of the line that it begins on.

    `first`: number of the first of the texts, which follow each other.
    """
    numbered = _without_marks(list(enumerate(texts, first)))
    return list(_rejoined(_taken_apart(numbered)))


def _without_marks(lines: list[Numbered]) -> list[Numbered]:
    """The lines without the quotation marks around each of them."""
    hits = [(number, _MARKS.match(text)) for number, text in lines if text.strip()]
    quoted = sum(hit is not None for _, hit in hits)
    if quoted < min(2, len(hits)) or quoted < max(1.0, QUOTED_SHARE * len(hits)):
        return lines
    return [(number, hit["text"] if (hit := _MARKS.match(text)) else text) for number, text in lines]


def _taken_apart(lines: list[Numbered]) -> list[Numbered]:
    """The lines of a log that is one line, or little more; or has escaped line ends."""
    written = [(number, text) for number, text in lines if text.strip()]
    longest = max((len(text) for _, text in written), default=0)
    glued = len(written) <= MOST_GLUED and longest >= GLUED_CHARACTERS and any(_pieces(text)[1:] for _, text in written)
    if not glued and not any("\\n" in text for _, text in written):
        return lines
    if glued or len(written) <= MOST_GLUED:
        return [(number, piece) for number, text in written for part in _unescaped(text) for piece in _pieces(part)]
    return lines


def _unescaped(text: str) -> list[str]:
    return [part.replace('\\"', '"').replace("\\t", "    ") for part in _ESCAPED.split(text)]


def _pieces(text: str) -> list[str]:
    """A line taken apart where lines begin in it; one that is short, or no log, stays whole."""
    if len(text) < GLUED_CHARACTERS:
        return [text]
    parts = (part for part in _GLUED.split(text) if part and part.strip())
    return [window for part in parts for piece in _frame_and_source(part) for window in _windows(piece)]


def _windows(piece: str) -> Iterator[str]:
    """What is left whole, cut where rules would read no further; each part begins in the one before it."""
    for start in range(0, max(1, len(piece) - OVERLAP_CHARACTERS), WINDOW_CHARACTERS - OVERLAP_CHARACTERS):
        yield piece[start : start + WINDOW_CHARACTERS]


def _frame_and_source(text: str) -> Iterator[str]:
    hit = _SOURCE.search(text) if text.startswith("File ") else None
    if hit is None:
        yield text
        return
    yield f"  {hit['frame']}"
    if hit["code"]:
        yield f"    {hit['code']}"


def _rejoined(lines: list[Numbered]) -> Iterator[Numbered]:
    """The lines, those joined that a terminal or a person broke."""
    if len(lines) > MOST_PASTED:
        yield from lines
        return
    width = _width([text for _, text in lines])
    held: Numbered | None = None
    end = ""
    for number, text in lines:
        if held is not None and (glue := _glue(held[1], end, text, width)) is not None:
            held, end = (held[0], _joined(held[1], glue, text)), text
            continue
        if held is not None:
            yield held
        held, end = (number, text), text
    if held is not None:
        yield held


def _width(texts: Sequence[str]) -> int:
    """The width at which lines were broken; 0 where none were."""
    width = max(map(len, texts), default=0)
    if width not in WIDTHS:
        return 0
    pairs = [(one, after) for one, after in pairwise(texts) if _is_broken(one, after, width)]
    goes_on = sum(_BEGINS.match(after) is None for _, after in pairs)
    return width if goes_on >= 2 and goes_on >= FULL_SHARE * len(pairs) else 0


def _is_broken(text: str, after: str, width: int) -> bool:
    """True where a line fills the width, or would with the next one's first word."""
    if not after.strip() or not any(map(str.isalpha, text)):
        return False
    if len(_COLUMNS.findall(text)) > 1 and len(_COLUMNS.findall(after)) > 1 and "|" not in text:
        return False
    if len(text) == width and after[0].isupper() and (text[-1].islower() or text[-1].isdigit()):
        return False
    if (after[0].isupper() and text.rstrip().endswith(_SENTENCE_ENDS)) or _WHOLE.search(text.rstrip()) is not None:
        return False
    if _SHAPE.sub("0", text.split(maxsplit=1)[0]) == _SHAPE.sub("0", after.split(maxsplit=1)[0]):
        return False  # rows of a table, or of one logger
    length = len(text) if text[-1:].strip() else len(text.rstrip())
    return length + len(after.split(maxsplit=1)[0]) + 1 > width and length * 2 > width


def _glue(whole: str, end: str, after: str, width: int) -> str | None:
    """What belongs between a line and the one after it that it was broken from; None where they are two lines.

    `end`: the last part of the line, where it was joined from several.
    """
    if len(whole) >= MAX_CHARACTERS or not end.strip() or not after.strip() or _BEGINS.match(after) is not None:
        return None
    if width and _is_broken(end, after, width):
        glue = "" if len(end) == width else " "
        return None if _tells_less(end, glue, after) else glue
    return next((glue for glue in (" ", "") if _tells_more(end, glue, after)), None)


def _joined(one: str, glue: str, other: str) -> str:
    return f"{one.rstrip()}{glue}{other.lstrip()}" if glue else f"{one}{other}"


def _tells_less(one: str, glue: str, other: str) -> bool:
    """True where some rule holds for one of the lines that does not hold for both together: they were two."""
    both = _joined(one, glue, other)
    return any(
        rule.regex.search(line) is not None and rule.regex.search(both) is None
        for line in (one, other)
        for rule in ALL.likely(line)
    )


def _tells_more(one: str, glue: str, other: str) -> bool:
    """True where some rule holds for both lines together that holds for neither of them."""
    both = _joined(one, glue, other)[:MAX_CHARACTERS]
    for rule in ALL.likely(both):
        hit = rule.regex.search(both)
        seam = len(one.rstrip())
        if (
            hit is not None
            and hit.start() < seam < hit.end()
            and not rule.regex.search(one)
            and not rule.regex.search(other)
        ):
            return True
    return False
