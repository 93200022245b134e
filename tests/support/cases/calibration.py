"""Holds what the diagnosis says of its confidence against how often it is right: `make calibration` prints it.

For each kind of answer: the answers in each span of confidence, and the curve that fits best to logs that no rule was
written for. A curve of shift 0 and slope 1 says that nothing is to be changed; where it differs by more than chance,
the constants of `flows.decisions.diagnosis.healthy` or the weights of rules are wrong. Nothing is drawn by chance. The
part `exam` is counted, and left out of the fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import Answer, answers

UNSEEN = ("held_out", "exam_seen")
EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.01)
KINDS = ("fault", "none", "unknown")
PENALTY = 1.0
"""Draws a curve towards no change, as one answer would."""


class Point(NamedTuple):
    """One answer."""

    odds: float
    """Log-odds of the confidence that was said."""
    right: bool
    weight: float = 1.0


class Curve(NamedTuple):
    """Log-odds of being right = shift + slope * log-odds that were said."""

    shift: float
    slope: float


def kind_of(answer: Answer) -> str:
    """A named fault, `none` or `unknown`."""
    said = answer.diagnosis.fault_class
    return said.value if said in (FaultClass.NONE, FaultClass.UNKNOWN) else "fault"


def fit(known: Sequence[Point], penalty: float = PENALTY) -> Curve:
    """The curve of least logistic loss, by Newton's method."""
    shift, slope = 0.0, 1.0
    for _ in range(50):
        first, second = penalty * shift, penalty * (slope - 1.0)
        one, both, two = penalty, 0.0, penalty
        for point in known:
            share = 1 / (1 + math.exp(-(shift + slope * point.odds)))
            miss, spread = point.weight * (share - point.right), point.weight * share * (1 - share)
            first, second = first + miss, second + miss * point.odds
            one, both, two = one + spread, both + spread * point.odds, two + spread * point.odds**2
        size = one * two - both * both
        shift, slope = shift - (two * first - both * second) / size, slope - (one * second - both * first) / size
    return Curve(shift, slope)


def spans(found: Sequence[Answer]) -> str:
    """Said, right and number of the answers in each span of confidence."""
    told: list[str] = []
    for low, high in itertools.pairwise(EDGES):
        inside = [one for one in found if low <= one.diagnosis.confidence < high]
        said = sum(one.diagnosis.confidence for one in inside) / max(1, len(inside))
        right = sum(one.right for one in inside) / max(1, len(inside))
        told += [f"{said:.2f} -> {right:.2f} (n={len(inside)})"] if inside else []
    return ", ".join(told)


def point_of(answer: Answer) -> Point:
    """The answer as the fit takes it."""
    confidence = min(max(answer.diagnosis.confidence, 1e-3), 1 - 1e-3)
    return Point(math.log(confidence / (1 - confidence)), answer.right)


if __name__ == "__main__":
    for kind in KINDS:
        chosen = [one for part in UNSEEN for one in answers(part) if kind_of(one) == kind]
        curve = fit([point_of(one) for one in chosen])
        print(f"{kind}: {spans(chosen)}; curve: shift {curve.shift:.2f}, slope {curve.slope:.2f}")
        print(f"  in the exam: {spans([one for one in answers('exam') if kind_of(one) == kind])}")
