"""How sure a diagnosis of log files is where nothing in them contradicts it."""

from __future__ import annotations

from dataclasses import replace

from flows.decisions.clues import Weighed

UNOPPOSED_ODDS = 2.0
"""A weight is the probability where one line alone is known. Whole logs are more: another cause would have left its own
words in them. Where no clue speaks for another class, the odds are about twice as good. The factor is measured: with
it stated confidence and accuracy agree on the development part of the corpus (`tests/test_corpus.py`). It is kept
small because logs that nobody here has seen are harder."""
MOST = 0.99


def unopposed(weighed: Weighed) -> Weighed:
    """The class with better odds where no clue speaks for another one."""
    if weighed.alternatives or not weighed.telling:
        return weighed
    odds = UNOPPOSED_ODDS * weighed.confidence / max(1.0 - weighed.confidence, 1e-9)
    return replace(weighed, confidence=round(min(odds / (1.0 + odds), MOST), 3))
