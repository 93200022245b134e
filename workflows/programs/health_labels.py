"""What the node daemon says of its node in labels: PASS, WARN, EVICT, TESTING, and each level's last diagnostic.

Pure; standard library only, Python 3.9. EVICT lasts until a diagnostic of the same or a deeper level passes, and so
does the WARN of a failed diagnostic: neither a shallow test nor time takes them back.
"""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, Sequence

from workflows.programs.health_dcgm import is_fatal
from workflows.programs.health_query import LEVELS
from workflows.programs.health_words import FAIL, PASS, UNKNOWN, Result, worst

PREFIX = "autopilot.ibm.com/"
HEALTH = f"{PREFIX}gpuhealth"
GPU_CHECKS = ("pciebw", "remapped", "gpupower", "gpumem", "dcgm")
"""What speaks of GPUs; the others never change the label."""
DEEP_LEVEL = 3
"""An EVICT whose diagnostic nobody recorded counts as one of this level."""
OUTPUT_CHARACTERS = 2000
"""Longest list of failed tests in an annotation."""


def level_label(level: int) -> str:
    """Label of a diagnostic's level."""
    return f"{PREFIX}dcgm.level.{level}"


def output_annotation(level: int) -> str:
    """Annotation with the failed tests of a level."""
    return f"{level_label(level)}.output"


def stamp(verdict: str, at: float) -> str:
    """`PASS_2026-01-31_12.00.00UTC` or `ERR_…`."""
    word = "PASS" if verdict == PASS else "ERR"
    return f"{word}_{time.strftime('%Y-%m-%d_%H.%M.%S', time.gmtime(at))}UTC"


def diagnosed(marks: Mapping[str, str], result: Result) -> Dict[str, str]:
    """Marks after a diagnostic; one that found nothing out changes none.

    A pass takes back what shallower levels failed with: a deeper level runs their tests, too.
    """
    after = dict(marks)
    if result.check != "dcgm" or result.verdict == UNKNOWN:
        return after
    after[level_label(result.level)] = stamp(result.verdict, result.at)
    after[output_annotation(result.level)] = ",".join(result.failing)[:OUTPUT_CHARACTERS]
    if result.verdict == PASS:
        for level in LEVELS:
            if level < result.level and after.get(level_label(level), "").startswith("ERR"):
                after[level_label(level)] = after[output_annotation(level)] = ""
        known = bool(failed_levels(marks))
        if after.get(HEALTH) == "EVICT" and not failed_levels(after) and (known or result.level >= DEEP_LEVEL):
            after[HEALTH] = ""
    return after


def failed_levels(marks: Mapping[str, str]) -> List[int]:
    """Levels whose last diagnostic failed."""
    return [level for level in LEVELS if marks.get(level_label(level), "").startswith("ERR")]


def health(
    marks: Mapping[str, str], results: Sequence[Result], fatal: Sequence[str], wanted: Sequence[str] = ()
) -> str:
    """The word of `gpuhealth`.

    Args:
        marks: labels and annotations as they stand, after `diagnosed`.
        results: the newest result of each check.
        fatal: words of failures that make a node unfit.
        wanted: checks that are made regularly; while one of them is missing, nothing gets better.
    """
    failed = failed_levels(marks)
    if any(is_fatal(marks.get(output_annotation(level), "").split(","), fatal) for level in failed):
        return "EVICT"
    if marks.get(HEALTH) == "EVICT" and not failed:
        return "EVICT"
    speaking = [one for one in results if one.check in GPU_CHECKS]
    # A deep test that found nothing out is not repeated for hours: it says nothing either way.
    verdicts = [one.verdict for one in speaking if one.verdict != UNKNOWN or one.level <= 1]
    if failed or FAIL in verdicts:
        return "WARN"
    missing = {one for one in wanted if one in GPU_CHECKS} - {one.check for one in speaking}
    if missing or not verdicts:
        return marks.get(HEALTH, "")
    return "PASS" if worst(verdicts) == PASS else "WARN"


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Dict[str, str]:
    """Marks to be written."""
    return {name: value for name, value in after.items() if before.get(name, "") != value}


def is_ours(name: str) -> bool:
    """Whether a label or an annotation is one of these."""
    return name.startswith(PREFIX)
