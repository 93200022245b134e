"""How known training programs print their progress, and what they do beside steps: tables of patterns.

A format finds one record in a cleaned line (no colours, no carriage return), and says which number in it counts the
steps and what the other fields mean. Patterns are compiled only when a format is chosen: a launcher needs one of them.

A phase mark is a line on loading or saving a checkpoint, an evaluation or the end. Only the time counts in which ranks
stand still. A save in the background stalls them only until it is scheduled or staged: Megatron prints a line for that,
torchtitan and NeMo give the seconds of that part alone. Later lines, when the background is done ("successfully saved",
"finalized"), end nothing. All sample lines of the tests come from the programs' own sources and published logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Tuple

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
SECONDS = rf"(?P<seconds>{_NUMBER})"
DURATION = rf"(?:{SECONDS} ?s(?:ec\w*)?|(?P<milliseconds>{_NUMBER}) ?ms)\b"
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
    unmeasured: bool = False
    """It ends a save of which nothing else may have been said: where no line announced it, its length is not known, and
    it counts as a moment."""


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
_STATE = r"(?:checkpoint|ckpt|snapshot|model|weights|pipeline)\b"
_LOADED = r"(?:the |a |from |model |training )*(?:checkpoint|ckpt|snapshot)\b"
_IS_NO_EVENT = (
    r"^(?!.{0,500}(?:async|\b(?:will|be|not|no|never|every|each|if|when|once|unless|loaded|loading|resum\w+)\b))"
)
GENERIC = (
    # "async": the ranks did not wait for what is told here.
    PhaseMark(
        rf"(?i)^(?!.{{0,500}}async)(?=.{{0,500}}(?:checkpoint|ckpt|snapshot|model|weights))"
        rf".{{0,500}}?\bsaved\b.{{0,300}}? in {DURATION}",
        "checkpoint",
        "aved",
        True,
    ),
    PhaseMark(rf"(?i)\bresumed\b.{{0,60}}?\bfrom\b(?:.{{0,300}}? in {DURATION})?", "restore", "esumed", True),
    PhaseMark(rf"(?i)\bloaded {_LOADED}(?:.{{0,300}}? in {DURATION})?", "restore", "oaded ", True),
    PhaseMark(r"(?i)\bresuming\b.{0,60}?\bfrom\b", "restore", "esuming"),
    PhaseMark(rf"(?i)\bloading {_LOADED}(?! shards)", "restore", "oading "),
    PhaseMark(
        rf"(?i){_IS_NO_EVENT}.{{0,500}}?\b(?:{_STATE}.{{0,60}}?\bsaved\b|saved\b.{{0,40}}?\b{_STATE})",
        "checkpoint",
        "aved",
        ends=True,
        unmeasured=True,
    ),
    PhaseMark(rf"(?i){_IS_NO_EVENT}.{{0,500}}?\bsaving\b.{{0,40}}?\b{_STATE}", "checkpoint", "aving "),
)
"""For programs whose steps a profile's own pattern reads: what many of them say, and only what is plain."""
_COPIED_ONLY = re.compile(r"(?i)async|\bstag|\bschedul|Global Checkpoint Save")
"""torchtitan, Megatron-LM and NeMo say these also where the state was only copied away and is still being written."""


def may_be_copied_only(line: str) -> bool:
    """Whether a line that ends the ranks' wait for a save leaves open whether all of it was written."""
    return _COPIED_ONLY.search(line) is not None


NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
"""A number as trainers print it: 2.5, 1.018988E+01, 7,282, nan."""
BAR = r"\d+%\|[^|]{0,200}\|\s*"
"""The part of a progress bar before its counter."""


@dataclass(frozen=True)
class Format:
    """One way to print progress."""

    record: str
    """One record. Group `step` is the counter; optional groups: `total`, `epoch`, and every field of `fields`.
    Without `step` the record only carries a loss, which then belongs to the latest step."""
    hint: str
    """A text that every record contains: lines without it are not searched."""
    fields: Tuple[Tuple[str, str], ...] = ()
    """Field (`loss`, `seconds`, `milliseconds`, `tokens_per_second`, `tokens_per_second_per_rank`, `compute_seconds`,
    `gradient_norm`, `bad`) and the
    pattern of its value, searched from the record's start to the next record. `bad`: a count; above zero the loss is
    not a number."""
    counter: str = "absolute"
    """`absolute`: counts over the whole run; `epoch`: starts again in each epoch; `bar`: as `absolute`, 0 means that
    nothing was done yet, and bars with another total (evaluation, data) are not training."""


@dataclass(frozen=True)
class Framework:
    """What one framework prints."""

    formats: Tuple[Format, ...]
    marks: Tuple[PhaseMark, ...] = ()


_MEGATRON = Format(
    record=r"iteration +(?P<step>\d+)/ *(?P<total>\d+) \|",
    hint="iteration ",
    fields=(
        ("loss", rf"\| *(?:lm |mlm |total )?loss:? +(?P<value>{NUMBER}) *\|"),
        ("milliseconds", rf"elapsed time per iteration \(ms\): +(?P<value>{NUMBER})"),
        ("tokens_per_second_per_rank", rf"tokens per GPU \(tokens/s/GPU\): +(?P<value>{NUMBER})"),
        ("tokens_per_second_per_rank", rf"tokens/s/GPU inst/harmonic mean: +(?P<value>{NUMBER})"),
        ("gradient_norm", rf"\| *grad norm: +(?P<value>{NUMBER}) *\|"),
        ("bad", r"number of nan iterations: +(?P<value>\d+)"),
    ),
)
_TITAN = Format(
    # Without the look-behind the validation line, which ends in the same words, would count as a training step.
    record=rf"(?<!validate )\bstep: +(?P<step>\d+)  +(?:loss|global_avg_loss): +(?P<loss>{NUMBER})",
    hint="step:",
    fields=(
        ("tokens_per_second_per_rank", rf"\btps: +(?P<value>{NUMBER})"),
        ("seconds", rf"(?:step_time|elapsed_time_per_step): +(?P<value>{NUMBER})"),
        ("gradient_norm", rf"\bgrad_norm: +(?P<value>{NUMBER})"),
    ),
)

FRAMEWORKS: Dict[str, Framework] = {
    "primus-demo": Framework(
        formats=(
            Format(
                # Ranks after the first say only how long their own part took.
                record=rf"^step (?P<step>\d+)/(?P<total>\d+) \| (?:loss (?P<loss>{NUMBER}) \||compute {NUMBER} s)",
                hint="step ",
                fields=(
                    ("tokens_per_second", rf"tokens/s (?P<value>{NUMBER})"),
                    ("seconds", rf"step time (?P<value>{NUMBER}) s"),
                    ("compute_seconds", rf"compute (?P<value>{NUMBER}) s"),
                ),
            ),
        ),
        marks=DEMO,
    ),
    "megatron": Framework(formats=(_MEGATRON,), marks=MEGATRON),
    "primus": Framework(formats=(_MEGATRON, _TITAN), marks=MEGATRON + TITAN),
    "torchtitan": Framework(formats=(_TITAN,), marks=TITAN),
    "nemo": Framework(
        formats=(
            Format(
                record=r"Training epoch \d+, iteration \d+/\d+ \|[^\n]*?\bglobal_step: (?P<step>\d+) \|",
                hint="Training epoch ",
                fields=(
                    ("loss", rf"reduced_train_loss: (?P<value>{NUMBER})"),
                    ("seconds", rf"train_step_timing in s: (?P<value>{NUMBER})"),
                    ("tokens_per_second_per_rank", rf"tokens_per_sec_per_gpu: (?P<value>{NUMBER})"),
                ),
            ),
            Format(
                record=rf"Epoch \d+: +{BAR}\d+/\d+ \[[^\]]*?\bglobal_step=(?P<step>\d+)",
                hint="global_step=",
                fields=(
                    ("loss", rf"reduced_train_loss=(?P<value>{NUMBER})"),
                    ("seconds", rf"train_step_timing=(?P<value>{NUMBER})"),
                ),
            ),
        ),
        marks=NEMO,
    ),
    "huggingface": Framework(
        formats=(
            Format(
                # Bars of data preparation and of loading carry a description in front; the trainer's own has none.
                record=rf"^\s*{BAR}(?P<step>\d+)/(?P<total>\d+) \[",
                hint="%|",
                counter="bar",
            ),
            Format(
                record=rf"\{{'loss': '?(?P<loss>{NUMBER})'?[,}}]",
                hint="'loss'",
                fields=(("gradient_norm", rf"'grad_norm': '?(?P<value>{NUMBER})"),),
            ),
        ),
        marks=HUGGING_FACE,
    ),
    "lightning": Framework(
        formats=(
            Format(
                record=rf"Epoch (?P<epoch>\d+): +(?:{BAR}|\|[^|]{{0,200}}\| *)(?P<step>\d+)/(?P<total>\d+|\?) \[",
                hint="Epoch ",
                fields=(
                    ("loss", rf"\btrain_loss_step=(?P<value>{NUMBER})"),
                    ("loss", rf"\b(?:train_|train/)?loss=(?P<value>{NUMBER})"),
                ),
                counter="epoch",
            ),
        ),
        marks=LIGHTNING,
    ),
}
"""`regex` is made from the profile's pattern; `file` and `none` read no lines."""


def from_pattern(pattern: str) -> Framework:
    """The framework of a profile's regular expression (groups `step`, `loss`, `tokens_per_second`, `seconds`, `total`).

    Counters that fall back to their beginning count epochs: the position goes on from where it was.
    """
    return Framework(formats=(Format(record=pattern, hint="", counter="epoch"),), marks=GENERIC)
