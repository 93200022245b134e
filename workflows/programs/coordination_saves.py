"""What the saves of a gang cost and how far each has come. Pure: times stand in the reports.

A save is *staged* when the ranks train on (their state was copied away), *written* when the last of its files was, and
*durable* when it was read back from the storage and proven: that one alone is there after a node is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from workflows.programs.checkpoint_interval import Advice, advice
from workflows.programs.frozen import replace
from workflows.reports import CheckpointSeen

KEPT_SAVES = 32


class Save(NamedTuple):
    """One save. Unix times in seconds."""

    step: Optional[int]
    """The step that was completed last when it began; None: none was seen."""
    begun_at: float
    stall_seconds: Optional[float] = None
    """The ranks stood still for so long; None: they still do."""
    written_at: Optional[float] = None
    durable_at: Optional[float] = None


@dataclass(frozen=True)
class Saves:
    """The saves of an attempt."""

    recent: Tuple[Save, ...] = ()
    """The newest ones, in order of their begin."""
    count: int = 0
    """Saves that were staged, over the whole attempt."""
    staged: Optional[int] = None
    """Newest step of that kind."""
    written: Optional[int] = None
    durable: Optional[int] = None

    @property
    def stalls(self) -> List[float]:
        """[saves] seconds that ranks stood still."""
        return [one.stall_seconds for one in self.recent if one.stall_seconds is not None]

    @property
    def drains(self) -> List[float]:
        """[saves] seconds from the begin of a save until it was durable."""
        return [one.durable_at - one.begun_at for one in self.recent if one.durable_at is not None]

    @property
    def steps_between(self) -> int:
        """Steps from one save to the next, the upper median; 0: not known."""
        steps = [one.step for one in self.recent if one.step is not None]
        pairs = zip(steps, steps[1:])  # noqa: B905, RUF007 - 3.10
        gaps = sorted(later - earlier for earlier, later in pairs if later > earlier)
        return gaps[len(gaps) // 2] if gaps else 0


def begun(saves: Saves, step: Optional[int], at: float) -> Saves:
    """The ranks stand still to save."""
    return replace(saves, recent=(*saves.recent, Save(step, at))[-KEPT_SAVES:])


def ended(saves: Saves, at: float) -> Saves:
    """The ranks go on; an end at its own beginning takes the save back."""
    if not saves.recent or saves.recent[-1].stall_seconds is not None:
        return saves
    last, before = saves.recent[-1], saves.recent[:-1]
    if at <= last.begun_at:
        return replace(saves, recent=before)
    last = last._replace(stall_seconds=at - last.begun_at)
    staged = saves.staged if last.step is None else last.step
    return replace(saves, recent=(*before, last), count=saves.count + 1, staged=staged)


def written(saves: Saves, report: CheckpointSeen, interval: int) -> Saves:
    """The prover has found a checkpoint whole, and not read it yet.

    Args:
        saves: what is known.
        report: what it found.
        interval: steps from one reported step to the next: the save may have begun after steps that nobody told.
    """
    if report.written_at is None:
        return saves
    newest = report.step if saves.written is None else max(saves.written, report.step)
    return _came_so_far(replace(saves, written=newest), report, report.written_at, interval)


def examined(saves: Saves, report: CheckpointSeen, good: Optional[int], interval: int) -> Saves:
    """The prover has read a checkpoint.

    Args:
        saves: what is known.
        report: what it found.
        good: newest step that is proven good, with this report.
        interval: as for `written`.
    """
    saves = replace(saves, durable=good)
    return written(saves, report, interval) if report.verdict == "pass" else saves


def _came_so_far(saves: Saves, report: CheckpointSeen, written_at: float, interval: int) -> Saves:
    """With what is known now of the save that the report is about."""
    places = [
        place
        for place, one in enumerate(saves.recent)
        if one.step is not None and one.step <= report.step < one.step + interval and one.begun_at <= report.at
    ]
    if not places or saves.recent[places[-1]].durable_at is not None:
        return saves
    changed = list(saves.recent)
    one = changed[places[-1]]
    # Files are stamped by the clock of the storage, which may be another one.
    known = min(max(written_at, one.begun_at), report.at) if one.written_at is None else one.written_at
    changed[places[-1]] = one._replace(written_at=known, durable_at=report.at if report.verdict == "pass" else None)
    return replace(saves, recent=tuple(changed))


def advised(saves: Saves, step_seconds: Optional[float], mttf_seconds: float) -> Optional[Advice]:
    """How often to save; None: nobody told how often the gang fails, or how often it saves is not known yet.

    Args:
        saves: of the attempt.
        step_seconds: typical step without saves; None: not known.
        mttf_seconds: mean time to failure of the whole gang; 0: not known.
    """
    if mttf_seconds <= 0 or step_seconds is None or not saves.steps_between:
        return None
    return advice(saves.stalls, saves.drains, step_seconds, saves.steps_between, mttf_seconds)


def told(saves: Saves, found: Optional[Advice]) -> Dict[str, Any]:
    """As `/status` says it: `staged`, `written`, `durable` (steps), `count`, medians in seconds, `advice`."""
    said: Optional[Dict[str, Any]] = None
    if found is not None:
        said = {"steps": found.steps, "seconds": found.seconds, "gain": found.gain, "change": found.change,
                "measured": found.measured, "why": found.why}  # fmt: skip
    return {
        "staged": saves.staged,
        "written": saves.written,
        "durable": saves.durable,
        "count": saves.count,
        "stall_seconds": middle(saves.stalls),
        "drain_seconds": middle(saves.drains),
        "steps_between": saves.steps_between or None,
        "advice": said,
    }


def middle(values: Sequence[float]) -> Optional[float]:
    """Their upper median; None for none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
