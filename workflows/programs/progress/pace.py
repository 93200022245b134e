"""How fast steps follow each other, by the times at which their lines were read. Pure.

Lines are read in bundles, and all steps of a bundle bear one time: the last of them was completed just before it, the
others at some time since the bundle before. So a rate is taken from the last step of a bundle to the last step of a
later one, never between neighbours, whose distance is either nothing or that of a whole bundle.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

BEAT_SECONDS = 0.5
"""Steps are looked at in groups of at least so long: the rest between two readings (a tenth of a second) is a fifth."""
LEAST_STEPS = 20
LEAST_SECONDS = 10.0
"""A present rate is taken over as many steps and over as long, where there were as many."""
SILENCES = 20.0
"""Times the usual distance of two readings: after such a silence (and `LEAST_SECONDS`) a rate is over."""
PAUSE = 5.0
"""Times the usual distance of two readings: a longer one was a pause, such as a save."""


class BundleEnd(NamedTuple):
    """The last step of a bundle and when the bundle was read, Unix seconds."""

    step: int
    at: float


class Beat(NamedTuple):
    """Some steps that followed each other."""

    step: int
    """The last one."""
    steps: int
    seconds: float
    """What all of them took."""


def stretches(rows: Iterable[Tuple[int, float]]) -> List[List[BundleEnd]]:
    """Readings of steps in the order of their completion (`rows`: step, Unix seconds), oldest first.

    A step that comes again, or a clock that was set back, begins another stretch.
    """
    found: List[List[BundleEnd]] = []
    for step, at in rows:
        if not found or step <= found[-1][-1].step or at < found[-1][-1].at:
            found.append([BundleEnd(step, at)])
        elif at == found[-1][-1].at:
            found[-1][-1] = BundleEnd(step, at)
        else:
            found[-1].append(BundleEnd(step, at))
    return found


def beats(rows: Iterable[Tuple[int, float]], least_seconds: float = BEAT_SECONDS) -> Iterator[Beat]:
    """The steps in groups that took at least so long; what is left at the end of a stretch is left out."""
    for readings in stretches(rows):
        first = readings[0]
        for reading in readings[1:]:
            if reading.at - first.at >= least_seconds:
                yield Beat(reading.step, reading.step - first.step, reading.at - first.at)
                first = reading


def step_seconds(rows: Iterable[Tuple[int, float]]) -> Optional[float]:
    """What a step usually takes: the upper median over the groups, else the mean; None where no time has passed."""
    readings = stretches(rows)
    found = sorted(beat.seconds / beat.steps for mine in readings for beat in beats(mine))
    if found:
        return found[len(found) // 2]
    seconds = sum(mine[-1].at - mine[0].at for mine in readings)
    steps = sum(mine[-1].step - mine[0].step for mine in readings)
    return seconds / steps if steps and seconds > 0 else None


class StepRate(NamedTuple):
    """How fast a program is now."""

    steps_per_second: float
    """While it makes steps."""
    whole: float
    """The same with its pauses since it began, or began again, last: what the time to go depends on."""


def pace_of(rows: Iterable[Tuple[int, float]], now: float) -> Optional[StepRate]:
    """The present pace; None where there are fewer than three readings, or the newest is old."""
    found: Sequence[Sequence[BundleEnd]] = stretches(rows) or [[]]
    readings = _since_silence(found[-1])
    if len(readings) < 3:
        return None
    usual = _usual(readings)
    if now - readings[-1].at > max(LEAST_SECONDS, SILENCES * usual):
        return None
    oldest, newest = readings[0], readings[-1]
    steps, seconds = 0, 0.0
    for before, after in zip(reversed(readings[:-1]), reversed(readings)):  # noqa: B905 - 3.10
        if steps >= LEAST_STEPS and seconds >= LEAST_SECONDS:
            break
        if after.at - before.at <= PAUSE * usual:
            steps, seconds = steps + after.step - before.step, seconds + after.at - before.at
    return StepRate(steps / seconds, (newest.step - oldest.step) / (newest.at - oldest.at))


def _since_silence(readings: Sequence[BundleEnd]) -> Sequence[BundleEnd]:
    """The newest readings between which there was no silence, as while a gang begins again."""
    if len(readings) < 3:
        return readings
    longest = max(LEAST_SECONDS, SILENCES * _usual(readings))
    for place in range(len(readings) - 1, 0, -1):
        if readings[place].at - readings[place - 1].at > longest:
            return readings[place:]
    return readings


def _usual(readings: Sequence[BundleEnd]) -> float:
    """The upper median distance of the newest readings."""
    newest = readings[-10 * LEAST_STEPS :]
    gaps = sorted(newest[place].at - newest[place - 1].at for place in range(1, len(newest)))
    return gaps[len(gaps) // 2]
