"""Lines of one form in which a whole number grows from each to the next: progress in words that nobody foresaw.

`#12 | acc 0.31 | obj 2.9` names neither step nor loss. But programs that go on print one form of line again and again,
with a count that rises and something measured beside it; hardly any that ends does so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from flows.decisions.steps import REPORTED
from workflows.evidence import LogLine

CHAIN = 3
"""So many lines must follow each other in it: two may be any two."""
MEASURES = 5
"""So many different values of one measure, where nothing is counted."""
LOOK_CHARACTERS = 300
FORMS = 200
"""Forms of lines that are followed at most."""
_STAMP = re.compile(
    r"\d{2,4}[-/]\d\d[-/]\d{2,4}[T _]?|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|\(?pid=\d{1,9}\)?"
)
_MEASURED = re.compile(r"\d\.\d|\d ?%|\de[-+]\d|\d ?m?s\b")
_WHOLE = re.compile(r"(?<![\d.])(?<!\d[eE])(?<!\d[eE][+-])\d{1,12}(?![\d.]*[.eE]\d|\d|\.$)")
_ERROR_MEASURED = re.compile(r"(?i)(?<=[-_ ])m?error(?=[ :=@]{1,3}\d)")
"""A measure, and no complaint."""
_METRIC = re.compile(
    r"(?i)\b(?:\w{1,20}_)?(?:loss|acc(?:uracy)?|reward|return|score|ppl|perplexity|psnr|auc|f1|elbo|mse|mae)\b"
    r"[^\d\n]{0,40}?[:= ]\s{0,4}(?P<value>-?\d{1,9}\.\d{1,18})"
)
_PLAIN = re.compile(r"[\d.eE+-]+")
_LISTED = re.compile(
    r"(?i)error|exception|fail|\bretr(?:y|ies)|attempt|timed? ?out|wait|hang|hung|stall|stuck|no progress|heartbeat|"
    r"abort|kill|signal|refused|crash|\bdead\b|\blost\b|elapsed|nan\b|\binf\b|0x[0-9a-f]|\bframe\b|\bFile \"|"
    r"\b(?:gpu|rank|worker|node|device|port|host|pid|process|thread|task|proc|core|cpu|layer|conv|block|param\w*|frame|"
    r"line|version|chunk|inuse|free|alloc\w*|bytes|shard|replica|pod|container)s?\b|\[\d{1,4}\]:|[MGK]iB\b|"
    r"^\s{0,8}(?:[+] |\d{1,3}: |[-*] )|\bN/A\b|\bO(?:n|ff) {1,20}\||\.weight|\.bias|[\d.]{7,15}:\d|=>"
)
"""Lists, reports and waits: their numbers grow as well, and nothing goes on."""


def grew_until(stream: Sequence[LogLine], since: int = 0) -> int:
    """Number of the last but one line of a form whose count grew `CHAIN` times, 0 where there is none.

    Args:
        stream: lines of one source, in order.
        since: nothing up to the line of this number is read.
    """
    chains: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    measures: dict[str, list[tuple[int, str]]] = {}
    last = 0
    for line in reversed(stream):
        if line.line <= since:
            break
        if line.text.startswith(REPORTED):
            continue
        text = line.text[:LOOK_CHARACTERS]
        last = _measured_again(line.line, text, measures)
        if last:
            break
        read = _read(text)
        if read is None or (read[0] not in chains and len(chains) >= FORMS):
            continue
        chain = chains.setdefault(read[0], [])
        if chain and not any(map(int.__lt__, read[1], chain[-1][1])):
            chain.clear()
        chain.append((line.line, read[1]))
        if len(chain) >= CHAIN and _grows([numbers for _, numbers in chain[-CHAIN:]]):
            last = chain[-CHAIN + 1][0]
            break
    return last


def _measured_again(number: int, text: str, measures: dict[str, list[tuple[int, str]]]) -> int:
    """Number of the last but one line of a form that measures the training anew each time; 0: too few."""
    hit = _METRIC.search(text)
    if hit is None or _LISTED.search(_ERROR_MEASURED.sub("", text)) or len(measures) >= FORMS:
        return 0
    told = measures.setdefault("".join(filter(str.isalpha, text.lower()))[:80], [])
    if all(value != hit["value"] for _, value in told):
        told.append((number, hit["value"]))
    return told[1][0] if len(told) >= MEASURES else 0


def _read(text: str) -> tuple[str, tuple[int, ...]] | None:
    """The form of a line, and its whole numbers; None for lines that prove nothing."""
    text = _ERROR_MEASURED.sub("", text)
    if not any(map(str.isdigit, text)) or _LISTED.search(text):
        return None
    text = _STAMP.sub("", text)
    numbers = tuple(int(hit) for hit in _WHOLE.findall(text)[:6])
    form = "".join(filter(str.isalpha, text.lower())) or _PLAIN.sub("", text)
    if not numbers or not form or _MEASURED.search(text) is None:
        return None
    return f"{len(numbers)}{form[:80]}", numbers


def _grows(latest_first: Sequence[tuple[int, ...]]) -> bool:
    """Does one of the numbers rise from line to line?"""
    return any(
        all(later > earlier for later, earlier in itertools.pairwise(column))
        for column in zip(*latest_first, strict=True)
    )
