"""What a line of a long log is worth: which rules hold; is it a launcher's report, a traceback, a stack, a step?

Reading a line exactly takes tens of microseconds, which 100 MB of lines do not have. So three things come before it.
All words that announce anything are looked for at once, in compiled code. Lines that differ in numbers and hashes alone
are read once. And a word that hundreds of lines of a log held without any meaning is chatter there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from operator import methodcaller

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.files import read_lines
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.matching import ALL, MAX_CHARACTERS, match_rules, numbers_matter
from flows.decisions.diagnosis.prefilter import beginnings, finder, inner, template
from flows.decisions.diagnosis.steps import done, step_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

MARKS: dict[str, tuple[str, ...]] = {
    "traceback": ("(most recent call last", "during handling of the above", "above exception was the direct"),
    "frame": ('file "', 'file \\"', ".py:"),
    "ending": (
        "exitcode", "root cause (first obs", "local_rank:", "srun: error:", " with pid ", "mpi_abort",
        "torchelastic.worker", "terminated with", "exits with return code", "returned non-zero exit",
        "died with <signals",
    ),
    "stack": ("most recent call first", "current thread", "thread 0x", "frame #", "py-spy", "flight recorder"),
    "again": (
        "resum", "loading checkpoint", "loaded checkpoint", "load checkpoint", "load_checkpoint", "checkpoint from",
        "restart", "restored", "restoring", "from scratch", "random initiali", "random seed",
    ),
    "scale": ("reducing loss scale", "attempted loss scale", "loss: nan", "loss nan", "norm: nan", "loss = nan"),
    "server": ("nfs: server ", "lustre: ", "ceph: mds", "cifs: "),
    "well": (
        "successfully assigned", "been allocated reso", "granted job alloc", "successfully provis", "cluster launched",
        ") resized to", "admitted by", "workload admitted", "workload was admitted", "pod group is ready",
        "ready to be scheduled", "acquired lease", "registered node", "reconnected to", "exception ignored in",
        "--- logging error",
    ),
}  # fmt: skip
"""Words of lines that no rule knows and that are evidence all the same: tracebacks, launchers' reports
(`flows.decisions.diagnosis.exits`), stacks, what a program says when it starts again, and what observers follow over
many lines: loss scales, servers that do not answer, and waits that ended (`flows.decisions.diagnosis.retractions`)."""
STEP_WORDS = ("loss", "step", "iter", "train", "epoch")
OWN_WORDS = tuple(template(w.encode()) for w in (*STEP_WORDS, *(word for words in MARKS.values() for word in words)))
BINARY_SHARE = 0.25
"""Lines with more characters than this that no encoding explains are no text."""
SHORTEST = 2
"""Words with fewer characters that are no digits stand in every second line: alone they announce nothing."""
BEGINNING = 5
"""So much of each word is looked for first."""
CHATTER = 60
"""So many different lines that hold a word and tell nothing make it chatter."""
TOGETHER = 8
"""So many times words of chatter are left out until they are so from the first, inexact look too."""
RATIO = 50
"""As long as one telling line comes to at most this many, a word is no chatter."""
MAX_SHAPES = 20_000
"""Shapes of lines remembered; when there are more, all are forgotten and read again."""
AT_ONCE = 4
"""Lines that are looked through together: asking costs as much as looking."""
_HASH = re.compile(rb"[0-9a-f]{6,}")
_AS_TEXT = methodcaller("decode", "latin-1")


@dataclass(frozen=True)
class LineSignificance:
    """What one line is worth."""

    rules: tuple[str, ...] = ()
    """Names of the rules that hold."""
    marks: tuple[str, ...] = ()
    step: bool = False
    """It reports a step, or the end of the training."""
    numbered: tuple[Rule, ...] | None = None
    """The rules that may hold for lines that differ in numbers alone; None: the same as for this one."""
    shape: bytes = b""
    """What such lines have in common; b"" where it makes no difference."""

    @property
    def silent(self) -> bool:
        """True where the line says nothing."""
        return not (self.rules or self.marks or self.step)


DULL = LineSignificance()
"""Neither this line nor one with other numbers says anything."""


class SignificanceIndex:
    """Knows what lines are worth, and remembers what it has read; one serves all files of a diagnosis.

    `chatter`: so many different lines with a word but without meaning make it chatter; fewer are faster.
    """

    def __init__(self, chatter: int = CHATTER) -> None:
        self._most_silent = chatter
        self._shapes: dict[bytes, LineSignificance] = {}
        self._told: Counter[bytes] = Counter()
        self._silent: Counter[bytes] = Counter()
        self._chatter: set[bytes] = set()
        self._waited = 0
        self._finders: tuple[Callable[[str], bool], Callable[[str], bool]] | None = None

    @cached_property
    def _announcing(self) -> set[bytes]:
        """Words that announce something, and were no chatter so far."""
        failing = {number for number, rule in enumerate(ALL.rules) if rule.fault_class is not FaultClass.NONE}
        words = {w for w, numbers in ALL.words.items() if len(w) >= SHORTEST and not failing.isdisjoint(numbers)}
        return words | set(OWN_WORDS)

    @cached_property
    def _inner(self) -> dict[bytes, set[bytes]]:
        """By word, the other words that it holds."""
        return inner(self._announcing)

    def _needed(self) -> list[bytes]:
        """Words without those that hold another one: a line that holds them holds that one too."""
        return [word for word in self._announcing if self._announcing.isdisjoint(self._inner[word])]

    def announced(self, templates: Iterable[bytes]) -> set[bytes]:
        """Those of the templates whose lines may be significant."""
        if self._chatter or self._finders is None:
            self._waited = 0 if self._finders is None else self._waited + 1
            self._announcing -= self._chatter
            self._chatter.clear()
            # By the beginnings of the words, which is faster and need not be exact, and by the words.
            may_hold = self._finders[0] if self._finders is not None and self._waited % TOGETHER else None
            may_hold = may_hold or finder(beginnings(self._announcing, BEGINNING))
            # Which words hold others takes as long as five finders to know: only logs with chatter are worth it.
            needed = self._announcing if self._finders is None else self._needed()
            self._finders = may_hold, finder(needed)
        may_hold, holds = self._finders
        return set(_with_hits(holds, _with_hits(may_hold, templates)))

    def of(self, line: bytes) -> LineSignificance:
        """What a line is worth; read once for all lines that differ in numbers and hashes alone."""
        shape = template(_HASH.sub(b"", line.lower()))
        found = self._shapes.get(shape)
        if found is None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            key = template(line)
            words = [*ALL.words_in(key), *(word for word in OWN_WORDS if word in key)]
            if self._chatter and self._chatter.issuperset(self._announcing.intersection(words)):
                return DULL
            found = significance_of(readable(line), ALL.announced(words))
            found = self._shapes[shape] = found if found.numbered is None else replace(found, shape=shape)
            self._credit(words, found)
        return found

    def _credit(self, words: Iterable[bytes], found: LineSignificance) -> None:
        """Words that announced nothing too often are chatter in these logs: they announce no more."""
        counts = self._silent if found.silent else self._told
        for word in words:
            counts[word] += 1
            if word in self._announcing and self._silent[word] > max(self._most_silent, RATIO * self._told[word]):
                self._chatter.add(word)


def _with_hits(holds: Callable[[str], bool], texts: Iterable[bytes]) -> list[bytes]:
    """Those that hold something: a few at a time, then each of those few, since most of a log's lines hold nothing."""
    every = list(texts)
    few = [every[start : start + AT_ONCE] for start in range(0, len(every), AT_ONCE)]
    likely = list(chain.from_iterable(compress(few, map(holds, map(_AS_TEXT, map(b"\n".join, few))))))
    return list(compress(likely, map(holds, map(_AS_TEXT, likely))))


def readable(line: bytes) -> str:
    """The line as text; "" where it is none: in enough random bytes every short word turns up."""
    text = line.decode("utf-8", "replace")
    return text if text.count("\ufffd") <= BINARY_SHARE * len(text) + 4 else ""


def significance_of(text: str, rules: Iterable[Rule] = ALL.rules) -> LineSignificance:
    """Read one line exactly; `rules` are those that may hold for it, in the order of all."""
    line = _line(text)
    lower = line.text.lower()
    likely = tuple(rule for rule in rules if any(word in lower for word in rule.literals))
    marks = tuple(mark for mark, words in MARKS.items() if any(word in lower for word in words))
    step = step_of(line) is not None or done(line)
    names = _names(line, likely)
    turning = [rule for rule in likely if numbers_matter(rule.pattern, line.text)]
    may_fail = names or any(rule.fault_class is not FaultClass.NONE for rule in turning)
    found = LineSignificance(names, marks, step, likely if turning and may_fail else None)
    return DULL if found.silent and found.numbered is None else found


def rules_again(text: str, numbered: tuple[Rule, ...]) -> tuple[str, ...]:
    """The rules that hold for a line, out of those that held or nearly held for one with other numbers."""
    return _names(_line(text), numbered)


def _line(text: str) -> LogLine:
    return clean(next(read_lines("", (text,))))


def _names(line: LogLine, rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Names of the rules that hold for the line, or for what follows a host's name before it (`pdsh`)."""
    found = match_rules(line.text[:MAX_CHARACTERS], line.source, rules)
    host, colon, rest = line.text.partition(": ")
    if not found and colon and " " not in host:
        found = match_rules(rest[:MAX_CHARACTERS], line.source, rules)
    return tuple(match.rule.name for match in found if match.rule.fault_class is not FaultClass.NONE)
