"""How known training programs print their progress: one table of patterns.

A format says how to find one record in a cleaned line (no colours, no carriage return), which number in it counts the
steps, and what the other fields mean. Patterns are compiled only when a format is chosen: a launcher needs one of them.
The sample lines of the tests are authentic: printed by the real programs or copied from their published logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from workflows.programs import progress_marks
from workflows.programs.progress_marks import PhaseMark

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
        marks=progress_marks.DEMO,
    ),
    "megatron": Framework(formats=(_MEGATRON,), marks=progress_marks.MEGATRON),
    "primus": Framework(formats=(_MEGATRON, _TITAN), marks=progress_marks.MEGATRON + progress_marks.TITAN),
    "torchtitan": Framework(formats=(_TITAN,), marks=progress_marks.TITAN),
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
        marks=progress_marks.NEMO,
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
        marks=progress_marks.HUGGING_FACE,
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
        marks=progress_marks.LIGHTNING,
    ),
}
"""`regex` is made from the profile's pattern; `file` and `none` read no lines."""


def from_pattern(pattern: str) -> Framework:
    """The framework of a profile's regular expression (groups `step`, `loss`, `tokens_per_second`, `seconds`, `total`).

    Counters that fall back to their beginning count epochs: the position goes on from where it was.
    """
    return Framework(formats=(Format(record=pattern, hint="", counter="epoch"),), marks=progress_marks.ANYBODY)
