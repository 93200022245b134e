"""What was learnt of the lines of logs: lines that are alike are read once, or a few times to be sure."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from itertools import compress, count

from flows.decisions.telling import DULL, Teller, Telling
from flows.decisions.words import template

KNOWN_BYTES = 8 << 20
"""Templates remembered; when there are more, all are forgotten."""
MAX_SHAPES = 20_000
"""Shapes remembered; when there are more, all are forgotten."""
SETTLED = 50
"""So many lines of one shape, all different and all telling the same, settle what the others tell."""
FEW = 4
"""Where less than every such line is new, new lines are worth remembering; in free text every line is new."""


def shape_of(templates: bytes) -> bytes:
    """Templates without hashes: without the letters a to f."""
    return templates.translate(None, b"abcdef")


def is_few(different: Sized, lines: Sized) -> bool:
    """Are there so few different ones among the lines that a new one says something?"""
    return len(different) * FEW <= len(lines) + 40 * FEW


class Learning:
    """What lines tell, by their templates and shapes; one serves all logs of a diagnosis."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._known: set[bytes] = set()
        self._known_bytes = 0
        self._telling: dict[bytes, Telling] = {}
        self._steps: set[bytes] = set()
        self._votes: dict[bytes, tuple[Telling, int]] = {}
        self._settled: dict[bytes, Telling] = {}

    def learn(self, lines: Sequence[bytes], templates: Sequence[bytes], shapes: Sequence[bytes]) -> None:
        """Read those of the lines that are not known yet, if a word announces anything."""
        if self._known_bytes > KNOWN_BYTES or len(self._votes) + len(self._settled) > MAX_SHAPES:
            self._forget()
        fresh = self._fresh(templates, shapes)
        if not fresh:
            return
        announced = self._teller.announced(fresh)
        if is_few(fresh, lines):
            self._known |= fresh
            self._known_bytes += sum(map(len, fresh))
        alike = is_few(set(shapes), lines)
        wanted = fresh if alike else announced
        first = {key: place for place, key in enumerate(templates) if key in wanted} if wanted else {}
        for key, place in first.items():
            found = self._teller.of(lines[place]) if key in announced else DULL
            self._remember(key, found)
            if alike:
                self._vote(shapes[place], found)

    def _fresh(self, templates: Sequence[bytes], shapes: Sequence[bytes]) -> set[bytes]:
        """Templates that are not known, of shapes that are not settled."""
        if not self._settled:
            return set(templates) - self._known
        settled = self._settled
        both = zip(templates, shapes, strict=True)
        return {key for key, shape in both if shape not in settled} - self._known

    def alone(self, line: bytes) -> Telling:
        """What one line tells, without learning from it."""
        return self._teller.of(line) if self._teller.announced((template(line),)) else DULL

    def telling(self, templates: Sequence[bytes], shapes: Sequence[bytes]) -> list[int]:
        """Places of the lines that tell more than a step, or may do so."""
        return _places(templates, self._telling, shapes, {s for s, found in self._settled.items() if not _plain(found)})

    def steps(self, templates: Sequence[bytes], shapes: Sequence[bytes]) -> list[int]:
        """Places of the lines that report steps."""
        return _places(templates, self._steps, shapes, {s for s, found in self._settled.items() if found.step})

    def of(self, template: bytes, shape: bytes) -> Telling:
        """What a line tells."""
        return self._telling.get(template) or self._settled.get(shape, DULL)

    def _remember(self, key: bytes, found: Telling) -> None:
        if found.step:
            self._steps.add(key)
        if not _plain(found):
            self._telling[key] = found
            self._known_bytes += len(key)

    def _vote(self, shape: bytes, found: Telling) -> None:
        first, times = self._votes.get(shape, (found, 0))
        if times < 0 or first != found:
            self._votes[shape] = (first, -1)  # its lines tell different things: each is read
        elif times < SETTLED:
            self._votes[shape] = (first, times + 1)
        else:
            self._settled[shape] = first
            del self._votes[shape]

    def _forget(self) -> None:
        self._known.clear()
        self._telling.clear()
        self._steps.clear()
        self._votes.clear()
        self._settled.clear()
        self._known_bytes = 0


def _plain(found: Telling) -> bool:
    """Nothing but a step, whatever its numbers are."""
    return not found.rules and not found.marks and found.numbered is None


def _places(
    templates: Sequence[bytes], wanted: set[bytes] | dict[bytes, Telling], shapes: Sequence[bytes], alike: set[bytes]
) -> list[int]:
    if not alike:
        return list(compress(count(), map(wanted.__contains__, templates)))
    both = zip(templates, shapes, strict=True)
    return [place for place, (key, shape) in enumerate(both) if key in wanted or shape in alike]
