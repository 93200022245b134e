"""Training steps in anybody's log: which lines say that training goes on, at which step, with which loss.

Broader and less exact than the launcher's formats (`workflows.programs.progress_formats`): a log may come from any
program, and here a step is evidence, not the position of a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flows.decisions.cues import Cue
from workflows.evidence import LogLine

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
