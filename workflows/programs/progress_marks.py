"""Lines by which training programs say what they do beside steps: load or save a checkpoint, evaluate, end. One table.

What counts is the time in which ranks stand still. A save that is written in the background stalls them only until it
is scheduled or staged: Megatron says so by a line of its own, torchtitan and NeMo give the seconds of that part alone.
What such a program says later, when the background is done ("successfully saved", "finalized"), ends nothing.

The lines are those of the programs' own sources and published logs; the tests hold them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
SECONDS = rf"(?P<seconds>{_NUMBER})"
TOOK = rf"(?:{SECONDS} ?s(?:ec\w*)?|(?P<milliseconds>{_NUMBER}) ?ms)\b"
"""How long something took, as most people print it: 0.015 s, 3.2s, 12 seconds, 15 ms."""


@dataclass(frozen=True)
class PhaseMark:
    """A line that says what the program does now, or has just done."""

    pattern: str
    """Groups `seconds` or `milliseconds`, both optional: how long it took, up to this line."""
    phase: str
    """A phase of `PhaseSeen`."""
    hint: str
    """A text that every such line contains: others are not searched, and nearly all lines are others."""
    ends: bool = False
    """The line stands at the end of the phase, not at its beginning."""
    whole: bool = False
    """Its seconds are those of all the phase, from the line that announced it on: however late the end was read."""


MEGATRON = (
    PhaseMark(r"saving checkpoint at iteration +\d+ to ", "checkpoint", "saving checkpoint at"),
    PhaseMark(
        r"successfully saved checkpoint (?:from|at) iteration ", "checkpoint", "successfully saved checkpoint", True
    ),
    PhaseMark(r"scheduled an async checkpoint save at iteration ", "checkpoint", "scheduled an async", True),
    PhaseMark(r"loading (?:\w+ ){0,2}checkpoint from ", "restore", "checkpoint from "),
    PhaseMark(r"successfully loaded checkpoint ", "restore", "successfully loaded checkpoint", True),
    PhaseMark(r"Evaluating on \d+ samples|Evaluating iter \d+", "evaluation", "Evaluating "),
)
TITAN = (
    PhaseMark(r"\b(?:Saving|Staging) (?:the|a full|a model(?: weights)? only) checkpoint", "checkpoint", "checkpoint"),
    # The older line lacks the space before "in".
    PhaseMark(
        rf"Finished (?:sav|stag)ing the checkpoint(?: \(or staging[^)]*\))? ?in {SECONDS} sec",
        "checkpoint",
        "Finished s",
        True,
    ),
    PhaseMark(rf"Last step checkpoint completed in {SECONDS}s", "checkpoint", "Last step checkpoint", True),
    PhaseMark(rf"Checkpointer waited staging {SECONDS} sec", "checkpoint", "Checkpointer waited", True),
    PhaseMark(r"Loading the checkpoint (?:from|at step) ", "restore", "Loading the checkpoint"),
    PhaseMark(rf"Finished loading the checkpoint in {SECONDS} sec", "restore", "Finished loading", True),
    PhaseMark(r"\bTraining completed\b", "ended", "Training completed"),
)
DEMO = (
    PhaseMark(r"^checkpoint step \d+ is being saved", "checkpoint", "is being saved"),
    PhaseMark(rf"^checkpoint step \d+ saved to .+ in {SECONDS} s", "checkpoint", "checkpoint step ", True, whole=True),
    PhaseMark(rf"^restore step \d+ from .+ in {SECONDS} s", "restore", "restore step ", True),
    PhaseMark(r"^final step \d+ ", "ended", "final step "),
)
_LIGHTNING = (
    PhaseMark(r"Restoring states from the checkpoint ", "restore", "Restoring states"),
    PhaseMark(r"Restored all states from the checkpoint ", "restore", "Restored all states", True),
    # Nothing is said when it is saved: the next step, or what comes instead of it, ends it.
    PhaseMark(r"global step \d+: .{1,200}, saving model to ", "checkpoint", "saving model to "),
)
LIGHTNING = (*_LIGHTNING, PhaseMark(r"Validation DataLoader \d+:|^Validating:", "evaluation", "Valid"))
NEMO = (
    *_LIGHTNING,
    PhaseMark(
        rf"Global Checkpoint Save : .{{1,200}} : Save duration: {SECONDS}s",
        "checkpoint",
        "Global Checkpoint Save",
        True,
    ),
    # The ranks do wait for this one, at the latest when the training is over.
    PhaseMark(rf"Async finalization time took {SECONDS} s", "checkpoint", "Async finalization", True),
    PhaseMark(
        rf"Global Checkpoint Load : .{{1,200}} : Time spent in load_checkpoint: {SECONDS}s",
        "restore",
        "Global Checkpoint Load",
        True,
    ),
    PhaseMark(r"Validation:|Validation DataLoader \d+:|Validation: iteration \d+", "evaluation", "Validation"),
)
HUGGING_FACE = (
    PhaseMark(r"\*\*\*\*\* Running (?:Evaluation|Prediction) \*\*\*\*\*", "evaluation", "***** Running "),
    PhaseMark(r"\{'eval_loss': ", "evaluation", "{'eval_loss'"),
    PhaseMark(r"Saving model checkpoint to ", "checkpoint", "Saving model checkpoint"),
    PhaseMark(r"Loading model from ", "restore", "Loading model from"),
    PhaseMark(r"Continuing training from checkpoint", "restore", "Continuing training from", True),
    PhaseMark(r"\{'train_runtime': ", "ended", "{'train_runtime'"),
)
ANYBODY = (
    # "async": the ranks did not wait for what is told here.
    PhaseMark(
        rf"(?i)^(?!.{{0,500}}async)(?=.{{0,500}}(?:checkpoint|ckpt|snapshot|model|weights))"
        rf".{{0,500}}?\bsaved\b.{{0,300}}? in {TOOK}",
        "checkpoint",
        "aved",
        True,
    ),
    PhaseMark(rf"(?i)\bresumed\b.{{0,60}}?\bfrom\b(?:.{{0,300}}? in {TOOK})?", "restore", "esumed", True),
    PhaseMark(rf"(?i)\bloaded checkpoint\b(?:.{{0,300}}? in {TOOK})?", "restore", "oaded checkpoint", True),
    PhaseMark(r"(?i)\bresuming\b.{0,60}?\bfrom\b", "restore", "esuming"),
    PhaseMark(r"(?i)\bloading checkpoint (?!shards)", "restore", "oading checkpoint"),
)
"""For programs whose steps a profile's own pattern reads: what many of them say, and only what is plain."""
_COPIED_ONLY = re.compile(r"(?i)async|\bstag|\bschedul|Global Checkpoint Save")
"""torchtitan, Megatron-LM and NeMo say these also where the state was only copied away and is still being written."""


def may_be_copied_only(line: str) -> bool:
    """Whether a line that ends the ranks' wait for a save leaves open whether all of it was written."""
    return _COPIED_ONLY.search(line) is not None
