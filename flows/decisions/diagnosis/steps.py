"""Training steps in the log of any program: the lines that show a step, its loss, and where the steps fell back.

Broader and less exact than the launcher's formats (`workflows.programs.progress.formats`): here a step is evidence, not
the position of a run. Of a log of any length the first and last steps and an even sample are kept.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import Generic, TypeVar

from flows.decisions.diagnosis.prefilter import Cue
from workflows.model.attempt import LogLine

_STEP = re.compile(
    r"(?:^|[\s\[({,;|'\"])(?:global[_ ]?step|train(?:ing)?[_ ]?step|optim(?:izer)?[_ ]?step|step|iteration|iter|"
    r"num_updates|updates?|batch)s?['\"]?\s{0,3}[:=\[#]?\s{0,12}['\"]?(?P<step>\d{1,9})\b",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepoch['\"]?\s{0,2}[:=\[ ]\s{0,3}['\"]?(?P<epoch>\d{1,6}(?:\.\d{1,8})?)", re.IGNORECASE)
_NUMBER = r"(?P<loss>[-+]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf(?:inity)?)\b)"
_LOSS = re.compile(
    r"\b(?:[a-z]{2,20}[_ /-]){0,3}loss(?:_(?:step|epoch))?['\"]?"
    rf"\s{{0,3}}[:=|]?\s{{0,3}}['\"]?(?:tensor\()?{_NUMBER}",
    re.IGNORECASE,
)
_NORM = re.compile(
    r"\b(?:grad(?:ient)?[_ ]?norm|gnorm)['\"]?\s{0,3}[:=]?\s{0,3}['\"]?"
    r"(?P<norm>[-+]?(?:nan|inf)\b|[-+]?\d[\d.eE+-]{0,20})",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"\b(?:tokens?/s|samples?/s|it/s|s/it|tokens per second|tps|elapsed time per iteration)\b", re.IGNORECASE
)
_DONE = re.compile(
    r"(?:'train_runtime'|\b(?:fine-?tun|train)ing (?:is )?(?:completed?|finished|done|ended)\b|"
    r"\b(?:finished|completed|done) training\b|"
    r"\btraining run complete|`Trainer\.fit` stopped: `max_(?:steps|epochs)|"
    r"exiting program (?:at iteration|after [\d.]{1,24} minutes)|"
    r"reached (?:the )?(?:max(?:imum)?|total|final) (?:number of )?(?:steps|iterations|epochs)|"
    r"\bepochs completed in [\d.]{1,12} hours|^final step \d|\bafter training is done\b|\btotal training time\b|"
    r"w(?:and|&)b process to finish\W{0,6}\(success\)|\bjobstate=completed\b)",
    re.IGNORECASE,
)
_CUES = (
    "train_runtime", "training complete", "training finished", "training done", "training ended", "training is ",
    "tuning complete", "tuning finished", "tuning done", "tuning ended", "tuning is ", "total training time",
    "(success)", "jobstate=completed", "finished training", "completed training", "done training",
    "epochs completed in", "training run complete", "trainer.fit` stopped", "exiting program a", "reached ",
    "final step",
)  # fmt: skip
"""One of them stands in every line that says so."""
_SAYS_DONE, _SAYS_STEP = Cue(*_CUES), Cue("loss", "step", "iter")
_NORM_NAMES = "abcdefghijklmnopqrstuvwxyz_ "
_LOSS_NAMES = _NORM_NAMES + "/-"
"""What the names of losses and norms are made of."""

REPORTED = "@primus "
"""Our launcher's own records of steps come later than the lines they were read from."""


@dataclass(frozen=True)
class Step:
    """What one line says of the training."""

    line: LogLine
    step: int | None
    """Step or iteration; None where only an epoch is named."""
    epoch: float | None
    loss: float | None
    """NaN and infinities as they are; None where no loss is named."""
    norm: float | None
    """Norm of the gradients, None where it is not named."""


def step_of(line: LogLine) -> Step | None:
    """The step that the line reports; None for every other line."""
    if not _SAYS_STEP.holds(line.text) or line.text.startswith(REPORTED):
        return None
    found = _numbers(line.text[:2000])
    return None if found is None else Step(line, *found)


@lru_cache(maxsize=32_768)
def _numbers(text: str) -> tuple[int | None, float | None, float | None, float | None] | None:
    """Step, epoch, loss and norm; remembered, since every observer asks for the same lines."""
    lower = text.lower()
    if "loss" not in lower and not ("step" in lower or "iter" in lower):
        return None
    begins = _beginning(lower, "loss", _LOSS_NAMES) if len(lower) == len(text) else 0
    loss = _LOSS.search(text, begins) if begins is not None else None
    if loss is None and _RATE.search(text) is None:
        return None
    step = _STEP.search(text)
    epoch = _EPOCH.search(text) if "epoch" in lower else None
    begins = _beginning(lower, "norm", _NORM_NAMES) if len(lower) == len(text) else 0
    norm = _NORM.search(text, begins) if begins is not None else None
    if step is None and epoch is None:
        return None
    return (
        int(step["step"]) if step else None,
        float(epoch["epoch"]) if epoch else None,
        _value(loss["loss"]) if loss else None,
        _value(norm["norm"]) if norm else None,
    )


def _beginning(lower: str, word: str, names: str) -> int | None:
    """Where the first name that ends with a word may begin; None where the word does not stand there.

    Patterns that begin with names are slow to find out where they do not hold.
    """
    place = lower.find(word)
    return len(lower[:place].rstrip(names)) if place >= 0 else None


def done(line: LogLine) -> bool:
    """True where the line says that the training came to its end."""
    if not _SAYS_DONE.holds(line.text):
        return False
    lower = line.text[:2000].lower()
    return any(cue in lower for cue in _CUES) and _DONE.search(line.text[:2000]) is not None


def steps(stream: Iterable[LogLine]) -> tuple[Step, ...]:
    """The steps that the lines of one source report, in order."""
    return tuple(found for line in _SAYS_STEP.among(stream) if (found := step_of(line)) is not None)


def ends(stream: Iterable[LogLine]) -> list[LogLine]:
    """The lines that say that the training came to its end, in order."""
    return [line for line in _SAYS_DONE.among(stream) if done(line)]


def lived_until(stream: Sequence[LogLine]) -> int:
    """Number of the line up to which the stream's own words prove that training went on, or came to its end.

    0 where nothing proves it. One step may have been under way when something broke: the last but one counts.
    """
    later = [found.line.line for found in steps(stream) if found.loss is None or math.isfinite(found.loss)]
    last = max(later[:-1], default=0)
    return max(last, max((line.line for line in ends(stream)), default=0))


def _value(text: str) -> float | None:
    try:
        return float(text.lower().rstrip("."))
    except ValueError:
        return None


Item = TypeVar("Item")
Piece = tuple[int, tuple[bytes, ...]]
"""Number of a line, and it with those that follow it."""


class FirstAndLast(Generic[Item]):
    """The first and the last items that were offered; what lies between is dropped."""

    def __init__(self, first: int, last: int) -> None:
        self._most = first
        self._first: list[Item] = []
        self._last: deque[Item] = deque(maxlen=last)

    def offer(self, item: Item) -> Item | None:
        """Take an item; the one that had to go for it, or None."""
        if len(self._first) < self._most:
            self._first.append(item)
            return None
        gone = self._last[0] if len(self._last) == self._last.maxlen else None
        self._last.append(item)
        return gone

    def outer_first(self) -> Iterator[Item]:
        """The items, in turn from both ends: those in the middle come last."""
        return in_turn((reversed(self._last), iter(self._first)))


class Sample(Generic[Item]):
    """At most `most` items, spread evenly over all that were offered: every second one goes when it is full."""

    def __init__(self, most: int) -> None:
        self._most, self._stride, self._offered = most, 1, 0
        self.items: list[Item] = []

    def offer(self, item: Item) -> None:
        """Take an item, or pass it over."""
        if self._offered % self._stride == 0 and len(self.items) == self._most:
            del self.items[1::2]
            self._stride *= 2
        if self._offered % self._stride == 0:
            self.items.append(item)
        self._offered += 1


def outer(items: Sequence[Item], most: int) -> Sequence[Item]:
    """The items without those in the middle: at most `most` from each end."""
    return items if len(items) <= 2 * most else [*items[:most], *items[-most:]]


def in_turn(sources: Iterable[Iterator[Item]]) -> Iterator[Item]:
    """One item of each source, then the next of each, until all are at their end."""
    left = list(sources)
    while left:
        for source in tuple(left):
            items = list(islice(source, 1))
            yield from items
            if not items:
                left.remove(source)


AT_ENDS = 50
"""Step lines kept from the beginning of a log, and as many from its end."""
SAMPLED = 64
"""Step lines of one block (about a megabyte) that are looked at and sampled, at most; fewer where few can be kept."""
AROUND = 2
"""Step lines kept before and after a telling line."""
NEAR = 400
"""Step lines of that kind kept from the beginning, and as many from the end."""
FALLS = 40
"""Falls kept from the beginning, and as many from the end: some programs count anew in every epoch."""
SEARCHED = 2
"""Falls of one block that are looked for line by line."""
BETWEEN = 60
"""Lines before the first step after a fall: what the program said as it started."""
FALLEN = 2
"""A step below the one before it divided by this is a fall; ranks side by side differ by less."""
Cut = Callable[[int, int], Piece]
"""The lines of a window from one place to before another."""


class Trail:
    """Follows the step lines of one log."""

    def __init__(self, most: int) -> None:
        self._ends: FirstAndLast[Piece] = FirstAndLast(AT_ENDS, AT_ENDS)
        self._near: FirstAndLast[Piece] = FirstAndLast(NEAR, NEAR)
        self._falls: FirstAndLast[Piece] = FirstAndLast(FALLS, FALLS)
        self._sample: Sample[Piece] = Sample(most)
        self._looks = min(SAMPLED, 2 + most)
        self._last: list[Piece] = []
        self._reached: int | None = None
        self._wanted = 0

    def follow(self, lines: Sequence[bytes], places: Sequence[int], telling: Sequence[int], cut: Cut) -> None:
        """The next part of a log.

        `places`: where step lines stand in the window; `telling`: lines around which steps are worth keeping; both
        ascending.
        """
        self._around(places, telling, cut)
        for place in outer(places, AT_ENDS):
            self._ends.offer(cut(place, place + 1))
        stride = len(places) // self._looks + 1
        for place in places[::stride]:
            self._sample.offer(cut(place, place + 1))
        self._fallen(lines, places, stride, cut)
        self._last = [*self._last, *(cut(place, place + 1) for place in places[-AROUND:])][-AROUND:]

    def pieces(self) -> Iterator[Piece]:
        """What is kept, the most important first."""
        return chain(
            self._falls.outer_first(), self._near.outer_first(), self._ends.outer_first(), iter(self._sample.items)
        )

    def _around(self, places: Sequence[int], telling: Sequence[int], cut: Cut) -> None:
        """The steps before and after each telling line; those that are still to come are waited for."""
        marks, before = iter(telling), list[int]()
        mark = next(marks, None)
        for place in (*places, None):
            while mark is not None and (place is None or mark <= place):
                for piece in [*self._last, *(cut(item, item + 1) for item in before)][-AROUND:]:
                    self._near.offer(piece)
                self._wanted, before = AROUND, []
                mark = next(marks, None)
            if place is not None:
                before = [*before[1 - AROUND :], place]
                if self._wanted:
                    self._near.offer(cut(place, place + 1))
                    self._wanted -= 1
            if mark is None and not self._wanted:
                return

    def _fallen(self, lines: Sequence[bytes], places: Sequence[int], stride: int, cut: Cut) -> None:
        looked = list(places[::stride]) + ([places[-1]] if places else [])
        numbers = [_number(lines[place]) for place in looked]
        searched = 0
        for (first, before), (last, after) in pairwise(zip([-1, *looked], [self._reached, *numbers], strict=True)):
            if before is None or after is None or after * FALLEN >= before or searched >= SEARCHED:
                continue
            searched += 1
            self._search(
                lines, [place for place in places if first <= place <= last], before if first < 0 else None, cut
            )
        known = [number for number in numbers if number is not None]
        self._reached = known[-1] if known else self._reached

    def _search(self, lines: Sequence[bytes], places: Sequence[int], reached: int | None, cut: Cut) -> None:
        previous: int | None = None
        for place in places:
            number = _number(lines[place])
            if number is not None and reached is not None and number * FALLEN < reached:
                for piece in self._last if previous is None else [cut(previous, previous + 1)]:
                    self._falls.offer(piece)
                self._falls.offer(cut(place - BETWEEN, place + 1))
                self._wanted = AROUND
                return
            reached, previous = (reached if number is None else number), place


def _number(line: bytes) -> int | None:
    found = step_of(LogLine(line.decode("utf-8", "replace"), ""))
    return found.step if found is not None else None
