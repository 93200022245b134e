"""One pass over a log of any size in bounded memory: which lines are worth keeping.

Lines that are alike are read once, or a few times to be sure. Of lines that match no rule, rare ones, the last of each
shape, the last of each speaker and an even sample are kept, since observers may see what no rule knows and a gap that
was only dropped must not look like silence.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain, compress, count, islice

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.files import MAX_LINE_CHARACTERS
from flows.decisions.diagnosis.prefilter import template
from flows.decisions.diagnosis.significance import DULL, LineSignificance, SignificanceIndex, readable, rules_again
from flows.decisions.diagnosis.steps import FirstAndLast, Piece, Sample, Trail, in_turn, outer

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
    """What lines mean, by their templates and shapes; one serves all logs of a diagnosis."""

    def __init__(self, teller: SignificanceIndex) -> None:
        self._teller = teller
        self._known: set[bytes] = set()
        self._known_bytes = 0
        self._telling: dict[bytes, LineSignificance] = {}
        self._steps: set[bytes] = set()
        self._votes: dict[bytes, tuple[LineSignificance, int]] = {}
        self._settled: dict[bytes, LineSignificance] = {}

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

    def alone(self, line: bytes) -> LineSignificance:
        """What one line is worth, without learning from it."""
        return self._teller.of(line) if self._teller.announced((template(line),)) else DULL

    def telling(self, templates: Sequence[bytes], shapes: Sequence[bytes]) -> list[int]:
        """Places of the lines that mean more than a step, or may do so."""
        return _places(templates, self._telling, shapes, {s for s, found in self._settled.items() if not _plain(found)})

    def steps(self, templates: Sequence[bytes], shapes: Sequence[bytes]) -> list[int]:
        """Places of the lines that report steps."""
        return _places(templates, self._steps, shapes, {s for s, found in self._settled.items() if found.step})

    def of(self, template: bytes, shape: bytes) -> LineSignificance:
        """What a line is worth."""
        return self._telling.get(template) or self._settled.get(shape, DULL)

    def _remember(self, key: bytes, found: LineSignificance) -> None:
        if found.step:
            self._steps.add(key)
        if not _plain(found):
            self._telling[key] = found
            self._known_bytes += len(key)

    def _vote(self, shape: bytes, found: LineSignificance) -> None:
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


def _plain(found: LineSignificance) -> bool:
    """Nothing but a step, whatever its numbers are."""
    return not found.rules and not found.marks and found.numbered is None


def _places(
    templates: Sequence[bytes],
    wanted: set[bytes] | dict[bytes, LineSignificance],
    shapes: Sequence[bytes],
    alike: set[bytes],
) -> list[int]:
    if not alike:
        return list(compress(count(), map(wanted.__contains__, templates)))
    both = zip(templates, shapes, strict=True)
    return [place for place, (key, shape) in enumerate(both) if key in wanted or shape in alike]


RARE, RARE_LINES = 32, 500
"""A shape of at most so many lines is rare; and so many lines of rare shapes are kept from each end of a log."""
SHAPES = 1000
"""Shapes whose last line is remembered; those that were not seen for the longest time are forgotten first."""
SPEAKER_BYTES, SPEAKERS = 12, 512
"""A speaker is known by the first bytes of a line (rank, host); more of them than this are no speakers."""
SAMPLED = 16
"""Lines of one block (about a megabyte) that the even sample is drawn from."""
ORDINARY_BYTES = 4 << 20
"""Shapes remembered; when there are more, all are forgotten."""
CUT_BYTES = 2000
"""What is kept of a line: as much as rules look at."""


class Ordinary:
    """Follows all lines of one log."""

    def __init__(self, most: int) -> None:
        self._known: set[bytes] = set()
        self._known_bytes = 0
        self._rare: dict[bytes, int] = {}
        self._rare_lines: FirstAndLast[Piece] = FirstAndLast(RARE_LINES, RARE_LINES)
        self._last: dict[bytes, Piece] = {}
        self._speakers: dict[bytes, Piece] = {}
        self._sample: Sample[Piece] = Sample(most)

    def follow(self, lines: Sequence[bytes], shapes: Sequence[bytes], first: int) -> None:
        """The next lines of a log, their shapes (`shape_of`), and the number of the first."""
        different = set(shapes)
        if is_few(different, lines):
            self._learn(different)
            last = {shape: place for place, shape in enumerate(shapes)}
            for shape, place in last.items():
                self._last.pop(shape, None)  # the newest stand last
                self._last[shape] = _piece(lines, place, first)
            for shape in tuple(islice(self._last, max(0, len(self._last) - SHAPES))):
                del self._last[shape]
        rare = [place for place, shape in enumerate(shapes) if shape in self._rare] if self._rare else []
        for place in outer(rare, RARE_LINES):
            self._count(shapes[place], _piece(lines, place, first))
        for place in range(0, len(lines), max(1, len(lines) // SAMPLED)):
            self._sample.offer(_piece(lines, place, first))
        if len(self._speakers) <= SPEAKERS:
            spoke = {line[:SPEAKER_BYTES]: place for place, line in enumerate(lines)}
            self._speakers |= {word: _piece(lines, place, first) for word, place in spoke.items()}

    def pieces(self) -> Iterator[Piece]:
        """What is kept, the most important first."""
        speakers = self._speakers.values() if len(self._speakers) <= SPEAKERS else ()
        shapes = reversed(tuple(self._last.values()))
        return chain(speakers, self._sample.items, in_turn((shapes, self._rare_lines.outer_first())))

    def _learn(self, shapes: set[bytes]) -> None:
        if self._known_bytes > ORDINARY_BYTES:
            self._known.clear()
            self._rare.clear()
            self._known_bytes = 0
        fresh = shapes - self._known
        self._known |= fresh
        self._known_bytes += sum(map(len, fresh))
        self._rare |= dict.fromkeys(fresh, 0)

    def _count(self, shape: bytes, piece: Piece) -> None:
        times = self._rare.get(shape, RARE)
        if times < RARE:
            self._rare[shape] = times + 1
            self._rare_lines.offer(piece)
        else:
            self._rare.pop(shape, None)


def _piece(lines: Sequence[bytes], place: int, first: int) -> Piece:
    return first + place, (lines[place][:CUT_BYTES],)


OF_A_KIND = 16
"""Lines of one rule or mark kept from the beginning with what stands around them, and as many from the end."""
ALONE = 300
"""Lines of one rule or mark kept from the beginning by themselves, and as many from the end: ranks say the same."""
BEFORE, AFTER = 4, 8
"""Lines kept around a telling one."""
AFTER_MARK = {"traceback": 80, "frame": 20, "stack": 60, "ending": 24}
"""Lines kept after a mark: frames, the fields of a report."""
LONGEST = max(AFTER, *AFTER_MARK.values())
NUMBERED, THINNED = 300, 64
"""Lines that differ in numbers alone, where numbers matter, and that are all read; of more, each so-and-so-many-th."""
CROWD = 600
"""Telling lines of one shape in one block that are all looked at; of those in the middle of more, each 64th."""
FLOOD_LINES, FLOOD_BYTES = 8192, 8
"""A block (about a megabyte) of more lines than this, with fewer bytes each on average, is a flood of short lines."""
_LONGER = re.compile(rb"[^\n]{12,}")
ROOM_BYTES = 16 << 20
"""Lines kept from between; when they take more, further telling lines come without what stands around them."""
SHARES = ((0, 0.5), (1, 0.75), (2, 1.0), (0, 1.0))
"""Of the room between the ends: half is for telling lines, a quarter for steps, the rest for rare lines and speakers;
what they leave is for telling lines again."""


class Skimmer:
    """Takes a log in blocks and keeps its telling lines.

    `most`: lines to keep, at least 8: a third from the beginning, a third from the end. `learning` grows with this
    log.
    """

    def __init__(self, learning: Learning, most: int) -> None:
        self._learnt = learning
        self._ends = max(2, most // 3)
        self._between = max(4, most - 2 * self._ends)
        self._carry = b""
        self._lines = 0
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque(maxlen=self._ends)
        self._window: list[bytes] = []
        self._templates: list[bytes] = []
        self._looked = 0  # lines of the window that were looked at, and stay as what stands before others
        self._shapes: list[bytes] = []
        self._times: dict[bytes, int] = {}
        self._room = ROOM_BYTES
        self._kinds: dict[str, FirstAndLast[Piece]] = {}
        self._alone: dict[str, FirstAndLast[Piece]] = {}
        self._trail = Trail(self._between // 8)
        self._ordinary = Ordinary(self._between // 12)

    def feed(self, block: bytes) -> None:
        """The next bytes."""
        if b"\0" in block:
            block = block.replace(b"\0", b"")  # holes in a file after a crash, and encodings of two bytes
        data = self._carry + block
        end = data.rfind(b"\n")
        self._carry = _short(data[end + 1 :])
        if end >= 0:
            self._take(data[:end])

    def finish(self) -> tuple[dict[int, bytes], int]:
        """What is kept, by number, and the number of lines in all."""
        if self._carry:
            self._take(self._carry)
        if self._is_short:
            return dict(enumerate(self._window, 1)), self._lines
        self._look(len(self._window))
        kept = dict(enumerate(self._head, 1))
        kept.update(enumerate(self._tail, self._lines - len(self._tail) + 1))
        sources = (self._of_kinds(), self._trail.pieces(), self._ordinary.pieces())
        ends = len(kept)
        for source, share in SHARES:
            for first, lines in sources[source]:
                fresh = {number: line for number, line in enumerate(lines, first) if number not in kept}
                if len(kept) + len(fresh) > ends + share * self._between:
                    break
                kept.update(fresh)
        return kept, self._lines

    @property
    def _is_short(self) -> bool:
        """Its ends are all of it: nothing needs to be chosen."""
        return self._lines <= 2 * self._ends

    def _take(self, text: bytes) -> None:
        ends = text.count(b"\n")
        if ends > FLOOD_LINES and len(text) < FLOOD_BYTES * ends:
            self._take_flood(text, ends + 1)
            return
        lines = text.split(b"\n")
        if max(map(len, lines)) > MAX_LINE_CHARACTERS:
            lines = [_short(line) for line in lines]
            text = b"\n".join(lines)
        if len(self._head) < self._ends:
            self._head += lines[: self._ends - len(self._head)]
        self._tail.extend(lines)
        templates = template(text)
        shapes = shape_of(templates).split(b"\n")
        self._ordinary.follow(lines, shapes, self._lines + 1)
        self._lines += len(lines)
        self._window += lines
        self._templates += templates.split(b"\n")
        self._shapes += shapes
        if not self._is_short:
            self._look(len(self._window) - LONGEST)
            self._drop(max(0, self._looked - BEFORE))

    def _take_flood(self, text: bytes, count: int) -> None:
        """Lines of a few bytes: only the longer ones among them are looked at, each by itself."""
        self._look(len(self._window))
        self._drop(len(self._window))
        if len(self._head) < self._ends:
            missing = self._ends - len(self._head)
            self._head += text.split(b"\n", missing)[:missing]
        self._tail.extend(text.rsplit(b"\n", self._ends)[-self._ends :])
        at, number = 0, self._lines + 1
        for hit in islice(_LONGER.finditer(text), FLOOD_LINES):
            number += text.count(b"\n", at, hit.start())
            at, line = hit.start(), hit[0][:CUT_BYTES]
            found = self._learnt.alone(line)
            for kind in chain(found.rules, found.marks):
                self._keep(self._kinds, kind, OF_A_KIND, (number, (line,)))
        self._lines += count

    def _drop(self, count: int) -> None:
        """Forget the first lines of the window."""
        del self._window[:count], self._templates[:count], self._shapes[:count]
        self._looked -= count

    def _look(self, until: int) -> None:
        """Look at the lines of the window that were not looked at, up to `until`."""
        if until <= self._looked:
            return
        start = self._looked
        self._learnt.learn(self._window[start:], self._templates[start:], self._shapes[start:])
        templates, shapes = self._templates[:until], self._shapes[:until]
        telling, steps = self._learnt.telling(templates, shapes), self._learnt.steps(templates, shapes)
        kept = self._tell(self._without_crowds(telling[bisect_left(telling, start) :]))
        self._trail.follow(self._window, steps[bisect_left(steps, start) :], kept, self._piece)
        self._looked = until

    def _without_crowds(self, places: list[int]) -> list[int]:
        """The places without most of those in the middle of many lines of one shape."""
        if len(places) <= CROWD:
            return places
        crowds: dict[bytes, list[int]] = {}
        for place in places:
            crowds.setdefault(self._shapes[place], []).append(place)
        half = CROWD // 2
        kept = (
            (*crowd[:half], *crowd[half:-half:THINNED], *crowd[max(half, len(crowd) - half) :])
            for crowd in crowds.values()
        )
        return sorted(chain.from_iterable(kept))

    def _tell(self, places: Iterable[int]) -> list[int]:
        """Keep the telling lines of the window and what stands around them; those that tell something after all."""
        kinds: dict[str, list[int]] = {}
        kept: list[int] = []
        for place in places:
            found = self._learnt.of(self._templates[place], self._shapes[place])
            rules = found.rules if found.numbered is None else self._again(place, found, found.numbered)
            if rules or found.marks:
                kept.append(place)
            for kind in chain(rules, found.marks):
                kinds.setdefault(kind, []).append(place)
        for kind, mine in kinds.items():
            for place in outer(mine, ALONE) if self._room > 0 else ():
                self._keep(self._alone, kind, ALONE, self._piece(place, place + 1))
            for place in outer(mine, OF_A_KIND):
                whole = (place - BEFORE, place + AFTER_MARK.get(kind, AFTER) + 1)
                self._keep(
                    self._kinds, kind, OF_A_KIND, self._piece(*(whole if self._room > 0 else (place, place + 1)))
                )
        return kept

    def _again(self, place: int, found: LineSignificance, numbered: tuple[Rule, ...]) -> tuple[str, ...]:
        """The rules that hold for a line whose numbers matter."""
        times = self._times[found.shape] = self._times.get(found.shape, 0) + 1
        if times > NUMBERED and times % THINNED:
            return ()
        return rules_again(readable(self._window[place]), numbered)

    def _keep(self, stores: dict[str, FirstAndLast[Piece]], kind: str, most: int, piece: Piece) -> None:
        store = stores.get(kind)
        if store is None:
            store = stores[kind] = FirstAndLast(most, most)
        gone = store.offer(piece)
        self._room += (_bytes(gone) if gone is not None else 0) - _bytes(piece)

    def _piece(self, first: int, end: int) -> Piece:
        """Lines of the window, cut."""
        first = max(0, first)
        number = self._lines - len(self._window) + first + 1
        return number, tuple(line[:CUT_BYTES] for line in self._window[first:end])

    def _of_kinds(self) -> Iterator[Piece]:
        """One line of each kind, then what stands around them, then all others: repeats in the middle come last."""
        alone = [store.outer_first() for store in self._alone.values()]
        for store in alone:
            yield from islice(store, 1)
        yield from in_turn(store.outer_first() for store in self._kinds.values())
        yield from in_turn(alone)


def _bytes(piece: Piece) -> int:
    return sum(map(len, piece[1]))


def _short(line: bytes) -> bytes:
    """A line of bounded length: what a progress bar showed last, else its beginning and its end."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    line = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return line[: MAX_LINE_CHARACTERS // 4] + line[-(MAX_LINE_CHARACTERS - MAX_LINE_CHARACTERS // 4) :]
